//! Option haggling: from the client's flags to an open export (§ Fixed newstyle negotiation).

use std::borrow::Cow;

use super::connection::Reason;
use super::exports::{Export, ExportTable};
use super::limits::Limits;
use super::option::{self, ContextRequest, InfoRequest, Malformed};
use super::outbox::Outbox;
use super::status::{Context, Contexts};
use super::tls::TlsPolicy;
use super::transmission::Terms;
use super::wire::{self, OptionHeader, info, option as number, option_reply as reply};

/// While this many bytes wait to be sent no more options are read, in bytes.
pub const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// An option longer than this ends the session instead of being skipped, in bytes.
const MAX_SKIPPED_BYTES: u32 = 16 << 20;

/// Outcome of option haggling.
#[derive(Debug)]
pub enum Outcome {
    /// The client opened an export.
    Open(Terms),
    /// The acknowledgement is queued; all further bytes are TLS.
    StartTls,
    /// The session is over.
    End(Reason),
}

#[derive(Debug)]
enum Expect {
    ClientFlags,
    Header,
    Data { option: u32, len_bytes: u32 },
    Skip { option: u32, left_bytes: u32 },
}

/// The state of option haggling on one connection.
#[derive(Debug)]
pub struct Negotiation {
    limits: Limits,
    tls_offered: bool,
    tls_required: bool,
    tls_active: bool,
    shutting_down: bool,
    expect: Expect,
    data: Vec<u8>,
    options_seen: u32,
    fixed_newstyle: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which contexts were selected, and those.
    contexts: Option<(String, Contexts)>,
}

type Answer = Result<Option<Outcome>, Refused>;

/// An error reply: its type and a text for people.
struct Refused(u32, Cow<'static, str>);

fn refused(kind: u32, message: impl Into<Cow<'static, str>>) -> Refused {
    Refused(kind, message.into())
}

impl From<Malformed> for Refused {
    fn from(Malformed(message): Malformed) -> Self {
        refused(reply::ERR_INVALID, message)
    }
}

impl Negotiation {
    /// Greets a client.
    #[must_use]
    pub fn new(limits: Limits, tls: &TlsPolicy, outbox: &mut Outbox) -> Self {
        outbox.pending_mut().extend_from_slice(&wire::greeting());
        Negotiation {
            limits,
            tls_offered: tls.server().is_some(),
            tls_required: tls.is_required(),
            tls_active: false,
            shutting_down: false,
            expect: Expect::ClientFlags,
            data: Vec::new(),
            options_seen: 0,
            fixed_newstyle: false,
            no_zeroes: false,
            structured: false,
            contexts: None,
        }
    }

    /// From now on every option is refused with NBD_REP_ERR_SHUTDOWN.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Whether the stream stands between two options.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        matches!(self.expect, Expect::Header) && self.data.is_empty()
    }

    /// Takes bytes, as many as it can; returns how many those were, and the outcome if there is
    /// one. Stops early while too much output waits.
    pub fn receive(
        &mut self,
        exports: &ExportTable,
        input: &[u8],
        outbox: &mut Outbox,
    ) -> (usize, Option<Outcome>) {
        let mut used_bytes = 0;
        while outbox.len_bytes() < MAX_OUTPUT_BYTES {
            let want_bytes = match self.expect {
                Expect::ClientFlags => wire::CLIENT_FLAGS_BYTES,
                Expect::Header => wire::OPTION_HEADER_BYTES,
                Expect::Data { len_bytes, .. } => len_bytes as usize,
                Expect::Skip { left_bytes, .. } => left_bytes as usize,
            };
            let rest = &input[used_bytes..];
            if let Expect::Skip { option, left_bytes } = &mut self.expect {
                let skip_bytes = rest.len().min(want_bytes);
                used_bytes += skip_bytes;
                *left_bytes -= skip_bytes as u32;
                if *left_bytes > 0 {
                    break;
                }
                let option = *option;
                self.expect = Expect::Header;
                let message = "the option is longer than this server reads";
                refuse(option, &refused(reply::ERR_TOO_BIG, message), outbox);
                continue;
            }
            let take_bytes = rest.len().min(want_bytes - self.data.len());
            self.data.extend_from_slice(&rest[..take_bytes]);
            used_bytes += take_bytes;
            if self.data.len() < want_bytes {
                break;
            }
            let data = std::mem::take(&mut self.data);
            let outcome = self.message(exports, &data, outbox);
            // The allocation is kept for the next message.
            self.data = data;
            self.data.clear();
            if outcome.is_some() {
                return (used_bytes, outcome);
            }
        }
        (used_bytes, None)
    }

    fn message(
        &mut self,
        exports: &ExportTable,
        data: &[u8],
        outbox: &mut Outbox,
    ) -> Option<Outcome> {
        match self.expect {
            Expect::ClientFlags => self.client_flags(data),
            Expect::Header => self.header(data),
            Expect::Data { option, .. } => {
                self.expect = Expect::Header;
                self.option(exports, option, data, outbox)
            }
            Expect::Skip { .. } => None,
        }
    }

    fn client_flags(&mut self, data: &[u8]) -> Option<Outcome> {
        let flags = data
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes));
        // § Client flags: an unknown flag is the end.
        if flags & !(wire::CLIENT_FIXED_NEWSTYLE | wire::CLIENT_NO_ZEROES) != 0 {
            return Some(Outcome::End(Reason::ClientFlags { flags }));
        }
        self.fixed_newstyle = flags & wire::CLIENT_FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & wire::CLIENT_NO_ZEROES != 0;
        self.expect = Expect::Header;
        None
    }

    fn header(&mut self, data: &[u8]) -> Option<Outcome> {
        let Some(OptionHeader { option, len_bytes }) =
            data.first_chunk().and_then(OptionHeader::decode)
        else {
            return Some(Outcome::End(Reason::OptionMagic));
        };
        self.options_seen += 1;
        if self.options_seen > self.limits.max_options {
            return Some(Outcome::End(Reason::TooManyOptions {
                limit: self.limits.max_options,
            }));
        }
        // § Newstyle negotiation: the only option of a client that is not fixed newstyle. It has
        // no way to be refused anything, and must not get TLS (§ Server-side requirements).
        if !self.fixed_newstyle && option != number::EXPORT_NAME {
            return Some(Outcome::End(Reason::NotFixedNewstyle { option }));
        }
        let cannot_refuse = option == number::EXPORT_NAME || len_bytes > MAX_SKIPPED_BYTES;
        self.expect = match len_bytes > self.limits.max_option_bytes {
            false => Expect::Data { option, len_bytes },
            true if cannot_refuse => {
                return Some(Outcome::End(Reason::OptionTooLong { option, len_bytes }));
            }
            true => Expect::Skip {
                option,
                left_bytes: len_bytes,
            },
        };
        None
    }

    fn option(
        &mut self,
        exports: &ExportTable,
        option: u32,
        data: &[u8],
        outbox: &mut Outbox,
    ) -> Option<Outcome> {
        if option == number::EXPORT_NAME {
            return Some(self.export_name(exports, data, outbox));
        }
        match self.answer(exports, option, data, outbox) {
            Ok(outcome) => {
                push_reply(outbox, option, reply::ACK, &[]);
                outcome
            }
            Err(refused) => {
                refuse(option, &refused, outbox);
                None
            }
        }
    }

    /// Does what the option asks, short of the final acknowledgement.
    fn answer(
        &mut self,
        exports: &ExportTable,
        option: u32,
        data: &[u8],
        outbox: &mut Outbox,
    ) -> Answer {
        if option == number::ABORT {
            return Ok(Some(Outcome::End(Reason::Aborted)));
        }
        if self.shutting_down {
            return Err(refused(reply::ERR_SHUTDOWN, "the server is shutting down"));
        }
        // § FORCEDTLS mode.
        if self.tls_required && !self.tls_active && option != number::STARTTLS {
            return Err(refused(reply::ERR_TLS_REQD, "this server requires TLS"));
        }
        match option {
            number::LIST => list(exports, data, outbox),
            number::STARTTLS => self.start_tls(data),
            number::INFO => self.info(exports, option, data, outbox).map(|_| None),
            number::GO => self
                .info(exports, option, data, outbox)
                .map(|terms| Some(Outcome::Open(terms))),
            number::STRUCTURED_REPLY => {
                option::nothing(data)?;
                self.structured = true;
                Ok(None)
            }
            number::LIST_META_CONTEXT => self.list_contexts(exports, data, outbox),
            number::SET_META_CONTEXT => self.set_contexts(exports, data, outbox),
            _ => Err(refused(
                reply::ERR_UNSUP,
                "this server does not know the option",
            )),
        }
    }

    fn start_tls(&mut self, data: &[u8]) -> Answer {
        option::nothing(data)?;
        if self.tls_active {
            return Err(refused(reply::ERR_INVALID, "TLS is active already"));
        }
        if !self.tls_offered {
            return Err(refused(
                reply::ERR_POLICY,
                "TLS is not configured on this server",
            ));
        }
        // Options sent in the clear may be another sender's: they are forgotten.
        self.tls_active = true;
        self.structured = false;
        self.contexts = None;
        Ok(Some(Outcome::StartTls))
    }

    fn export_name(&self, exports: &ExportTable, data: &[u8], outbox: &mut Outbox) -> Outcome {
        // § Option types, NBD_OPT_EXPORT_NAME: it cannot be refused, only cut off.
        let unencrypted = self.tls_required && !self.tls_active;
        let export = match option::text(data) {
            Ok(name) if !unencrypted && !self.shutting_down => exports.find(name),
            _ => None,
        };
        let Some(export) = export else {
            return Outcome::End(Reason::ExportRefused);
        };
        let out = outbox.pending_mut();
        let flags = export.transmission_flags(self.structured);
        out.extend_from_slice(&wire::export_name_reply(export.size_bytes, flags));
        if !self.no_zeroes {
            out.extend_from_slice(&[0; wire::EXPORT_NAME_ZEROES_BYTES]);
        }
        Outcome::Open(self.terms(export))
    }

    fn info(
        &self,
        exports: &ExportTable,
        option: u32,
        data: &[u8],
        outbox: &mut Outbox,
    ) -> Result<Terms, Refused> {
        let request = InfoRequest::parse(data)?;
        let export = find(exports, request.export)?;
        let flags = export.transmission_flags(self.structured);
        let mut push = |data: &[&[u8]]| push_reply(outbox, option, reply::INFO, data);
        push(&[&wire::info_export(export.size_bytes, flags)]);
        if request.wants(info::NAME) {
            push(&[&info::NAME.to_be_bytes(), export.name.as_str().as_bytes()]);
        }
        if request.wants(info::DESCRIPTION) && !export.description.as_str().is_empty() {
            push(&[
                &info::DESCRIPTION.to_be_bytes(),
                export.description.as_str().as_bytes(),
            ]);
        }
        // Told to all, asked or not: ours differ from the defaults (§ Block size constraints).
        push(&[&export.block_size_info(&self.limits)]);
        Ok(self.terms(export))
    }

    fn terms(&self, export: &Export) -> Terms {
        // Contexts hold for the export they were selected for only.
        let contexts = match &self.contexts {
            Some((name, contexts)) if name == export.name.as_str() => *contexts,
            _ => Contexts::default(),
        };
        Terms {
            export: export.clone(),
            structured: self.structured,
            contexts,
        }
    }

    /// § Option types: both context options need structured replies first.
    fn context_request<'a>(
        &self,
        exports: &'a ExportTable,
        data: &'a [u8],
    ) -> Result<(ContextRequest<'a>, &'a Export), Refused> {
        if !self.structured {
            return Err(refused(
                reply::ERR_INVALID,
                "structured replies must be selected first",
            ));
        }
        let request = ContextRequest::parse(data)?;
        let export = find(exports, request.export)?;
        Ok((request, export))
    }

    fn list_contexts(&self, exports: &ExportTable, data: &[u8], outbox: &mut Outbox) -> Answer {
        let (request, _) = self.context_request(exports, data)?;
        for context in Context::ALL {
            let asked = |query: &str| query == context.name() || query == context.namespace();
            if !request.has_queries() || request.queries().any(asked) {
                push_context(outbox, number::LIST_META_CONTEXT, 0, context);
            }
        }
        Ok(None)
    }

    fn set_contexts(&mut self, exports: &ExportTable, data: &[u8], outbox: &mut Outbox) -> Answer {
        // Whatever becomes of this request, the earlier selection is gone.
        self.contexts = None;
        let (request, export) = self.context_request(exports, data)?;
        let mut contexts = Contexts::default();
        for context in Context::ALL {
            if request.queries().any(|query| query == context.name()) {
                contexts.insert(context);
                push_context(outbox, number::SET_META_CONTEXT, context.id(), context);
            }
        }
        self.contexts = Some((export.name.as_str().to_owned(), contexts));
        Ok(None)
    }
}

fn find<'a>(exports: &'a ExportTable, name: &str) -> Result<&'a Export, Refused> {
    exports
        .find(name)
        .ok_or_else(|| refused(reply::ERR_UNKNOWN, no_such_export(exports, name)))
}

/// The error for a client that asks for a name which no export has (any more).
fn no_such_export(exports: &ExportTable, name: &str) -> Cow<'static, str> {
    let told = exports.formerly(name).map(|export| {
        format!(
            "this export was renamed: ask for `{}`",
            export.name.as_str()
        )
    });
    match told {
        // A text for people is a string too (§ Conventions).
        Some(told) if told.len() <= wire::MAX_STRING_BYTES => told.into(),
        _ => "no export has this name".into(),
    }
}

fn list(exports: &ExportTable, data: &[u8], outbox: &mut Outbox) -> Answer {
    option::nothing(data)?;
    for export in exports.iter() {
        let name = export.name.as_str().as_bytes();
        // Names are at most 4096 bytes.
        let len_bytes = (name.len() as u32).to_be_bytes();
        let description = export.description.as_str().as_bytes();
        push_reply(
            outbox,
            number::LIST,
            reply::SERVER,
            &[&len_bytes, name, description],
        );
    }
    Ok(None)
}

fn push_context(outbox: &mut Outbox, option: u32, id: u32, context: Context) {
    let data = [&id.to_be_bytes()[..], context.name().as_bytes()];
    push_reply(outbox, option, reply::META_CONTEXT, &data);
}

fn refuse(option: u32, Refused(kind, message): &Refused, outbox: &mut Outbox) {
    push_reply(outbox, option, *kind, &[message.as_bytes()]);
}

fn push_reply(outbox: &mut Outbox, option: u32, kind: u32, data: &[&[u8]]) {
    let len_bytes: usize = data.iter().map(|part| part.len()).sum();
    let out = outbox.pending_mut();
    // Data are a few strings of at most 4096 bytes.
    out.extend_from_slice(&wire::option_reply(option, kind, len_bytes as u32));
    data.iter().for_each(|part| out.extend_from_slice(part));
}
