//! Times that most requests do not exceed.

/// The time that so many of a thousand do not exceed; 0 of none. The times are in order.
pub(crate) fn quantile_ns(sorted_ns: &[u64], of_thousand: usize) -> u64 {
    let at = (sorted_ns.len() * of_thousand).div_ceil(1000);
    let time_ns = sorted_ns.get(at.saturating_sub(1));
    time_ns.copied().unwrap_or(0)
}
