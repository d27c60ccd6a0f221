//! The data of options, read without trusting any length in them.

use super::wire::MAX_STRING_BYTES;

/// A fault of an option's data; the text goes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// A cursor over an option's data.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len_bytes: usize) -> Result<&'a [u8], Malformed> {
        let Some((head, rest)) = self.0.split_at_checked(len_bytes) else {
            return Err(Malformed("a length in the option reaches past its end"));
        };
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn string(&mut self) -> Result<&'a str, Malformed> {
        let len_bytes = self.u32()?;
        // A length beyond the address space is beyond the option, too.
        text(self.bytes(usize::try_from(len_bytes).unwrap_or(usize::MAX))?)
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed("the option has data left over"))
        }
    }
}

/// A string as the protocol defines it (§ Conventions).
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > MAX_STRING_BYTES {
        return Err(Malformed("a string is longer than 4096 bytes"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Malformed("a string is not UTF-8 without NUL")),
    }
}

/// The data of an option that has none.
pub(crate) fn nothing(data: &[u8]) -> Result<(), Malformed> {
    if data.is_empty() {
        Ok(())
    } else {
        Err(Malformed("the option takes no data"))
    }
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InfoRequest<'a> {
    pub(crate) export: &'a str,
    /// Types of information, two bytes each, as sent.
    wanted: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(data);
        let export = reader.string()?;
        let count = reader.u16()?;
        let wanted = reader.bytes(usize::from(count) * 2)?;
        reader.end()?;
        Ok(InfoRequest { export, wanted })
    }

    pub(crate) fn wants(&self, info: u16) -> bool {
        self.wanted
            .chunks_exact(2)
            .any(|wanted| wanted == info.to_be_bytes())
    }
}

/// The data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Debug)]
pub(crate) struct ContextRequest<'a> {
    pub(crate) export: &'a str,
    count: u32,
    queries: &'a [u8],
}

impl<'a> ContextRequest<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(data);
        let export = reader.string()?;
        let count = reader.u32()?;
        let queries = reader.0;
        for _ in 0..count {
            reader.string()?;
        }
        reader.end()?;
        Ok(ContextRequest {
            export,
            count,
            queries,
        })
    }

    pub(crate) fn has_queries(&self) -> bool {
        self.count > 0
    }

    pub(crate) fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut reader = Reader(self.queries);
        std::iter::from_fn(move || reader.string().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_lengths_are_errors() {
        assert!(InfoRequest::parse(&[]).is_err());
        assert!(InfoRequest::parse(&[0xff; 4]).is_err());
        assert!(InfoRequest::parse(&[0, 0, 0, 0, 0xff, 0xff]).is_err());
        assert!(InfoRequest::parse(&[0, 0, 0, 0, 0, 0, 9]).is_err());
        assert!(InfoRequest::parse(&[0, 0, 0, 0, 0, 0]).is_ok());
        assert!(ContextRequest::parse(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(ContextRequest::parse(&[0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0]).is_err());
        assert!(text(&[b'x'; 4097]).is_err());
        assert!(text(&[0xc3, 0x28]).is_err());
        assert!(text(b"a\0").is_err());
    }

    #[test]
    fn wanted_information_is_found() {
        let data = [0, 0, 0, 1, b'e', 0, 2, 0, 1, 0, 3];
        let request = InfoRequest::parse(&data).unwrap();
        assert_eq!(request.export, "e");
        assert!(request.wants(1) && request.wants(3) && !request.wants(2));
    }
}
