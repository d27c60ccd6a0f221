//! `copies`: on how many devices of the cache each dirty block is. It is the cache's and not one of
//! the engine's settings: the superblock has it (I28).

/// The name of the setting, in the section `[cache]` and of `forebay set`.
pub(crate) const COPIES: &str = "copies";

/// Reads it.
///
/// # Errors
/// Says what it can be.
pub(crate) fn copies(text: &str) -> Result<u8, String> {
    match text {
        "1" | "default" => Ok(1),
        "2" => Ok(2),
        other => Err(format!(
            "copies {}: copies is 1 or 2, the number of cache devices that each dirty block is on",
            other.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_data_is_on_one_device_or_on_two() {
        assert_eq!(
            (copies("1"), copies("2"), copies("default")),
            (Ok(1), Ok(2), Ok(1))
        );
        let said = copies("3").unwrap_err();
        assert!(said.contains("1 or 2"), "{said}");
    }
}
