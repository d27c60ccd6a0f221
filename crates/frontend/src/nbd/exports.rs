//! Exports and their names. The loop owns the table and may change it at any time; a connection
//! keeps its own copy of the export it opened.

use super::limits::Limits;
use super::wire::{self, MAX_STRING_BYTES, transmission_flag};

/// The loop's number for an export; comes back when a client opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportId(pub u32);

/// A name or description the protocol can carry: UTF-8 without NUL, at most 4096 bytes
/// (§ Conventions).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExportName(String);

impl ExportName {
    /// Checks a text.
    ///
    /// # Errors
    /// If it is too long or holds a NUL character.
    pub fn new(text: impl Into<String>) -> Result<Self, ExportError> {
        let text = text.into();
        if text.len() > MAX_STRING_BYTES {
            return Err(ExportError::TextTooLong {
                len_bytes: text.len(),
            });
        }
        if text.contains('\0') {
            return Err(ExportError::TextWithNul);
        }
        Ok(ExportName(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why an export cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The protocol limits strings.
    #[error("an NBD export name or description has {len_bytes} bytes; use at most 4096")]
    TextTooLong {
        /// Its length, in bytes.
        len_bytes: usize,
    },
    /// The protocol forbids NUL in strings.
    #[error("an NBD export name or description contains a NUL character; remove it")]
    TextWithNul,
    /// The minimum block size must be a power of two of at most 64 KiB (§ Block size
    /// constraints), and the engine's unit is 512 bytes.
    #[error(
        "the minimum block size of NBD export `{name}` is {bytes} bytes; use a power of two from 512 to 4096"
    )]
    MinimumBlock {
        /// The export.
        name: String,
        /// Size asked for, in bytes.
        bytes: u32,
    },
    /// The size must be whole blocks, or its end could not be written.
    #[error(
        "NBD export `{name}` has {size_bytes} bytes, which is not a multiple of its minimum block size; round it down"
    )]
    Size {
        /// The export.
        name: String,
        /// Its size, in bytes.
        size_bytes: u64,
    },
    /// Two exports of one name.
    #[error("an NBD export named `{name}` exists already; choose another name or remove it first")]
    Duplicate {
        /// The name.
        name: String,
    },
}

/// The preferred block size told to clients, in bytes: the cache's mapping unit.
pub const PREFERRED_BLOCK_BYTES: u32 = 4096;

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The loop's number for it.
    pub id: ExportId,
    /// Name for clients.
    pub name: ExportName,
    /// A text for people; may be empty.
    pub description: ExportName,
    /// Its size, in bytes, a multiple of `min_block_bytes`.
    pub size_bytes: u64,
    /// Requests must be multiples of this, in bytes: a power of two from 512 to 4096.
    pub min_block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// The origin is a rotating disk.
    pub rotational: bool,
    /// Zeroing never costs as much as writing, so that the FAST_ZERO flag can be honoured.
    pub fast_zero: bool,
}

impl Export {
    /// The transmission flags for a client (§ Transmission flags). DF may be told only to those
    /// with structured replies.
    #[must_use]
    pub fn transmission_flags(&self, structured: bool) -> u16 {
        use transmission_flag as flag;
        let mut flags = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::CAN_MULTI_CONN
            | flag::SEND_CACHE;
        if self.read_only {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::SEND_TRIM | flag::SEND_WRITE_ZEROES;
            if self.fast_zero {
                flags |= flag::SEND_FAST_ZERO;
            }
        }
        if self.rotational {
            flags |= flag::ROTATIONAL;
        }
        if structured {
            flags |= flag::SEND_DF;
        }
        flags
    }

    pub(crate) fn block_size_info(&self, limits: &Limits) -> [u8; 14] {
        wire::info_block_size(
            self.min_block_bytes,
            PREFERRED_BLOCK_BYTES,
            limits.max_request_bytes,
        )
    }

    fn check(&self) -> Result<(), ExportError> {
        let name = || self.name.as_str().to_owned();
        let bytes = self.min_block_bytes;
        if !bytes.is_power_of_two() || !(512..=PREFERRED_BLOCK_BYTES).contains(&bytes) {
            return Err(ExportError::MinimumBlock {
                name: name(),
                bytes,
            });
        }
        if !self.size_bytes.is_multiple_of(u64::from(bytes)) {
            return Err(ExportError::Size {
                name: name(),
                size_bytes: self.size_bytes,
            });
        }
        Ok(())
    }
}

/// All exports of a server, in the order in which they are listed.
#[derive(Clone, Debug, Default)]
pub struct ExportTable {
    exports: Vec<Export>,
    /// Names that exports had before, of those that are still offered.
    former: Vec<(ExportName, ExportId)>,
}

impl ExportTable {
    /// Offers an export to clients from now on.
    ///
    /// # Errors
    /// If the protocol cannot express it or the name is taken.
    pub fn add(&mut self, export: Export) -> Result<(), ExportError> {
        export.check()?;
        if self.exports.iter().any(|other| other.name == export.name) {
            return Err(ExportError::Duplicate {
                name: export.name.as_str().to_owned(),
            });
        }
        self.former.retain(|(name, _)| *name != export.name);
        self.exports.push(export);
        Ok(())
    }

    /// Offers an export under another name. Connections that have it open keep it; a client that
    /// asks for the old name is told the new one.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn rename(&mut self, id: ExportId, name: ExportName) -> Result<(), ExportError> {
        let taken = |export: &Export| export.name == name && export.id != id;
        if self.exports.iter().any(taken) {
            return Err(ExportError::Duplicate { name: name.0 });
        }
        if let Some(export) = self.exports.iter_mut().find(|export| export.id == id) {
            self.former.retain(|(former, _)| *former != name);
            let old = std::mem::replace(&mut export.name, name);
            if old != export.name {
                self.former.push((old, id));
            }
        }
        Ok(())
    }

    /// The export that had a name before.
    #[must_use]
    pub fn formerly(&self, name: &str) -> Option<&Export> {
        let mut former = self.former.iter();
        let (_, id) = former.find(|(former, _)| former.as_str() == name)?;
        self.exports.iter().find(|export| export.id == *id)
    }

    /// Tells a larger size to clients that open it from now on. A connection keeps the size it was
    /// told: the protocol has no message for another.
    ///
    /// # Errors
    /// If the protocol cannot express it.
    pub fn grow(&mut self, id: ExportId, size_bytes: u64) -> Result<(), ExportError> {
        if let Some(export) = self.exports.iter_mut().find(|export| export.id == id) {
            let grown = Export {
                size_bytes,
                ..export.clone()
            };
            grown.check()?;
            *export = grown;
        }
        Ok(())
    }

    /// Offers it no longer. Connections that have it open are the loop's to close.
    pub fn remove(&mut self, id: ExportId) -> Option<Export> {
        let at = self.exports.iter().position(|export| export.id == id)?;
        self.former.retain(|(_, of)| *of != id);
        Some(self.exports.remove(at))
    }

    /// The export of that name. The empty name is the default export: the one of that name, or
    /// the only one there is (§ Option types, NBD_OPT_EXPORT_NAME).
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Export> {
        let named = self
            .exports
            .iter()
            .find(|export| export.name.as_str() == name);
        match (named, name, self.exports.as_slice()) {
            (None, "", [only]) => Some(only),
            _ => named,
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.exports.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(id: u32, name: &str) -> Export {
        Export {
            id: ExportId(id),
            name: ExportName::new(name).unwrap(),
            description: ExportName::new("").unwrap(),
            size_bytes: 1 << 20,
            min_block_bytes: 512,
            read_only: false,
            rotational: false,
            fast_zero: false,
        }
    }

    #[test]
    fn names_are_found_and_the_empty_one_means_the_only_one() {
        let mut table = ExportTable::default();
        assert!(table.find("").is_none());
        table.add(export(1, "a")).unwrap();
        assert_eq!(table.find("").unwrap().id, ExportId(1));
        table.add(export(2, "b")).unwrap();
        assert!(table.find("").is_none());
        assert_eq!(table.find("b").unwrap().id, ExportId(2));
        assert!(table.add(export(3, "b")).is_err());
        assert!(table.remove(ExportId(1)).is_some());
        assert!(table.remove(ExportId(1)).is_none());
        table.add(export(4, "")).unwrap();
        assert_eq!(table.find("").unwrap().id, ExportId(4));
    }

    #[test]
    fn a_former_name_leads_to_the_new_one_until_another_has_it() {
        let name = |text: &str| ExportName::new(text).unwrap();
        let mut table = ExportTable::default();
        table.add(export(1, "a")).unwrap();
        table.add(export(2, "b")).unwrap();
        assert!(table.rename(ExportId(1), name("b")).is_err());
        table.rename(ExportId(1), name("c")).unwrap();
        assert!(table.find("a").is_none());
        assert_eq!(table.find("c").unwrap().id, ExportId(1));
        assert_eq!(table.formerly("a").unwrap().name, name("c"));
        table.rename(ExportId(1), name("c")).unwrap();
        assert!(table.formerly("c").is_none());
        table.add(export(3, "a")).unwrap();
        assert!(table.formerly("a").is_none());
        table.rename(ExportId(3), name("d")).unwrap();
        table.rename(ExportId(3), name("a")).unwrap();
        assert!(table.formerly("a").is_none() && table.formerly("d").is_some());
        table.remove(ExportId(3));
        assert!(table.formerly("d").is_none());
    }

    #[test]
    fn an_export_that_grew_is_told_to_whoever_opens_it() {
        let mut table = ExportTable::default();
        table.add(export(1, "a")).unwrap();
        table.grow(ExportId(1), 2 << 20).unwrap();
        assert_eq!(table.find("a").unwrap().size_bytes, 2 << 20);
        assert!(table.grow(ExportId(1), 700).is_err());
        assert_eq!(table.find("a").unwrap().size_bytes, 2 << 20);
    }

    #[test]
    fn what_the_protocol_cannot_express_is_refused() {
        let mut table = ExportTable::default();
        assert!(
            table
                .add(Export {
                    min_block_bytes: 1,
                    ..export(1, "a")
                })
                .is_err()
        );
        assert!(
            table
                .add(Export {
                    min_block_bytes: 8192,
                    ..export(1, "a")
                })
                .is_err()
        );
        assert!(
            table
                .add(Export {
                    size_bytes: 700,
                    ..export(1, "a")
                })
                .is_err()
        );
        assert!(ExportName::new("a\0b").is_err());
        assert!(ExportName::new("x".repeat(4097)).is_err());
        assert!(ExportName::new("x".repeat(4096)).is_ok());
    }
}
