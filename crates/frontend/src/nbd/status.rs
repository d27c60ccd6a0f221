//! Block status: the loop's knowledge of a range, told to the client in each context it selected.
//!
//! Two contexts exist. `base:allocation` is the protocol's (§ Metadata contexts).
//! `forebay:state` is ours; its flags are
//!
//! | bit | meaning |
//! |---|---|
//! | 0 | *cached*: at least one block of the range is on the cache device |
//! | 1 | *dirty*: the origin device does not hold all of the range yet |

use super::wire;

/// A metadata context a client can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// `base:allocation`.
    Allocation,
    /// `forebay:state`.
    State,
}

impl Context {
    /// All there are, in the order in which they are answered.
    pub const ALL: [Context; 2] = [Context::Allocation, Context::State];

    /// Its name in queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::State => "forebay:state",
        }
    }

    /// Its namespace with the colon, which as a query lists all in it.
    #[must_use]
    pub fn namespace(self) -> &'static str {
        match self {
            Context::Allocation => "base:",
            Context::State => "forebay:",
        }
    }

    /// Its number in replies, unique on a connection (§ Option types, NBD_OPT_SET_META_CONTEXT).
    #[must_use]
    pub fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::State => 2,
        }
    }

    fn flags(self, state: BlockState) -> u32 {
        match self {
            Context::Allocation => u32::from(state.hole) | u32::from(state.zero) << 1,
            Context::State => u32::from(state.cached) | u32::from(state.dirty) << 1,
        }
    }
}

/// Which contexts a client selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts(u8);

impl Contexts {
    /// Selects one more.
    pub fn insert(&mut self, context: Context) {
        self.0 |= 1 << context.id();
    }

    /// Whether none is selected.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The selected ones.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Context> {
        Context::ALL
            .into_iter()
            .filter(move |context| self.0 & 1 << context.id() != 0)
    }
}

/// State of a range. All false is always a correct answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    /// Nothing is allocated for it.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
    /// It is on the cache device.
    pub cached: bool,
    /// The origin device does not hold it yet.
    pub dirty: bool,
}

/// A piece of a range in one state. The first piece of an answer starts where the request does,
/// each other one where the last ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusExtent {
    /// Its length, in bytes.
    pub len_bytes: u64,
    /// State of the range.
    pub state: BlockState,
}

/// The chunks of an answer: for each context a chunk with its own merged descriptors, cut to the
/// range asked for and to `max_extents` (§ Structured reply types, NBD_REPLY_TYPE_BLOCK_STATUS). A
/// missing end is left for the client to ask again; a missing beginning is answered as an extent of
/// which nothing is known.
pub(crate) fn encode(
    into: &mut Vec<u8>,
    cookie: u64,
    len_bytes: u32,
    contexts: Contexts,
    max_extents: u16,
    extents: &[StatusExtent],
) {
    let unknown = [StatusExtent {
        len_bytes: u64::from(len_bytes),
        state: BlockState::default(),
    }];
    let known = extents.iter().any(|extent| extent.len_bytes > 0);
    let extents = if known { extents } else { &unknown };
    let last = contexts.iter().next_back();
    for context in contexts.iter() {
        let start = into.len();
        into.extend_from_slice(&[0; wire::STATUS_CHUNK_BYTES]);
        let mut count = 0;
        for (len_bytes, flags) in Merged::new(context, extents, len_bytes).take(max_extents.into())
        {
            into.extend_from_slice(&wire::descriptor(len_bytes, flags));
            count += 1;
        }
        let header = wire::status_chunk(Some(context) == last, cookie, context.id(), count);
        into[start..start + wire::STATUS_CHUNK_BYTES].copy_from_slice(&header);
    }
}

/// Neighbours alike in one context, as one (length, flags); never beyond the range.
struct Merged<'a> {
    context: Context,
    extents: std::iter::Peekable<std::slice::Iter<'a, StatusExtent>>,
    left_bytes: u32,
}

impl<'a> Merged<'a> {
    fn new(context: Context, extents: &'a [StatusExtent], len_bytes: u32) -> Self {
        Merged {
            context,
            extents: extents.iter().peekable(),
            left_bytes: len_bytes,
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        let first = self.extents.find(|extent| extent.len_bytes > 0)?;
        let flags = self.context.flags(first.state);
        let mut len_bytes = first.len_bytes;
        while let Some(next) = self.extents.peek() {
            if next.len_bytes > 0 && self.context.flags(next.state) != flags {
                break;
            }
            len_bytes = len_bytes.saturating_add(next.len_bytes);
            self.extents.next();
        }
        // The cut fits in 32 bits because the request's length does.
        let cut_bytes = len_bytes.min(u64::from(self.left_bytes)) as u32;
        self.left_bytes -= cut_bytes;
        (cut_bytes > 0).then_some((cut_bytes, flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(len_bytes: u64, zero: bool, dirty: bool) -> StatusExtent {
        StatusExtent {
            len_bytes,
            state: BlockState {
                hole: zero,
                zero,
                cached: dirty,
                dirty,
            },
        }
    }

    fn merged(context: Context, extents: &[StatusExtent], len_bytes: u32) -> Vec<(u32, u32)> {
        Merged::new(context, extents, len_bytes).collect()
    }

    #[test]
    fn neighbours_alike_in_a_context_become_one() {
        let extents = [
            extent(4096, false, false),
            extent(0, true, true),
            extent(4096, false, true),
            extent(8192, true, true),
        ];
        assert_eq!(
            merged(Context::Allocation, &extents, 16384),
            [(8192, 0), (8192, 3)]
        );
        assert_eq!(
            merged(Context::State, &extents, 16384),
            [(4096, 0), (12288, 3)]
        );
    }

    #[test]
    fn nothing_reaches_past_the_range() {
        let extents = [extent(4096, false, false), extent(u64::MAX, true, false)];
        assert_eq!(merged(Context::Allocation, &extents, 4096), [(4096, 0)]);
        assert_eq!(
            merged(Context::Allocation, &extents, 5120),
            [(4096, 0), (1024, 3)]
        );
        let all = u32::MAX - 511;
        assert_eq!(
            merged(Context::Allocation, &extents, all),
            [(4096, 0), (all - 4096, 3)]
        );
        assert_eq!(
            merged(
                Context::Allocation,
                &[extent(u64::MAX, false, false); 3],
                all
            )
            .len(),
            1
        );
    }

    #[test]
    fn one_chunk_for_each_context_and_done_on_the_last() {
        let mut contexts = Contexts::default();
        Context::ALL
            .into_iter()
            .for_each(|context| contexts.insert(context));
        let mut bytes = Vec::new();
        encode(
            &mut bytes,
            7,
            4096,
            contexts,
            16,
            &[extent(4096, true, true)],
        );
        let mut expected = wire::status_chunk(false, 7, 1, 1).to_vec();
        expected.extend(wire::descriptor(4096, 3));
        expected.extend(wire::status_chunk(true, 7, 2, 1));
        expected.extend(wire::descriptor(4096, 3));
        assert_eq!(bytes, expected);
    }

    #[test]
    fn nothing_known_is_one_extent_without_flags() {
        let mut contexts = Contexts::default();
        contexts.insert(Context::State);
        let mut bytes = Vec::new();
        encode(&mut bytes, 7, 4096, contexts, 16, &[]);
        assert_eq!(bytes[wire::STATUS_CHUNK_BYTES..], wire::descriptor(4096, 0));
    }
}
