//! Bytes from a client to the NBD server: the protocol machine, without sockets or devices.
//!
//! The first byte of an input says how the server behaves; the rest is what the client says.

#[path = "nbd/client.rs"]
mod client;
#[path = "nbd/hello.rs"]
mod hello;
#[path = "nbd/server.rs"]
mod server;

use forebay_frontend::nbd::{Reason, TlsPolicy, TlsServer};
use forebay_fuzz::{Counting, Outcome, SplitMix64, Surface, run};
use server::{Served, Server};

#[global_allocator]
static COUNTING: Counting = Counting;

/// An input in so many begins TLS, whose handshake costs as much as a hundred other inputs.
const TLS_SHARE: u64 = 512;

struct Nbd {
    client: client::Client,
    server: Server,
    /// Without, with TLS offered, with TLS required.
    policies: [TlsPolicy; 3],
    served: Served,
}

impl Nbd {
    fn new() -> Nbd {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).expect("a name");
        let certificate = certificate.self_signed(&key).expect("a certificate");
        let pem = (certificate.pem(), key.serialize_pem());
        let server = TlsServer::from_pem(pem.0.as_bytes(), pem.1.as_bytes(), None);
        let server = server.expect("certificate and key belong together");
        Nbd {
            client: client::Client::new(),
            server: Server::new(),
            policies: [
                TlsPolicy::Off,
                TlsPolicy::Offered(server.clone()),
                TlsPolicy::Required(server),
            ],
            served: Served::default(),
        }
    }
}

impl Surface for Nbd {
    fn name(&self) -> &'static str {
        "nbd"
    }

    fn most_bytes(&self) -> usize {
        1 << 20
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        let manner = random.bits() as u8;
        if random.below(TLS_SHARE) == 0 {
            // Offered or required.
            input.push((manner & 0x3f) | (0x40 << random.below(2)));
            self.client.begin_tls(random, input);
        } else {
            input.push(manner & 0x3f);
            self.client.converse(random, input);
        }
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        let Some((&manner, said)) = input.split_first() else {
            return Outcome::Rejected("nothing");
        };
        let policy = self.policies[usize::from(manner >> 6).min(2)].clone();
        let (reason, served) = self.server.serve(policy, manner, said);
        self.served.add(&served);
        let carried_out = served.carried_out();
        match reason {
            _ if carried_out >= 8 => Outcome::Accepted("eight requests or more carried out"),
            _ if carried_out > 0 => Outcome::Accepted("one to seven requests carried out"),
            Some(Reason::Disconnected) => Outcome::Accepted("disconnected in order"),
            Some(Reason::Aborted) => Outcome::Accepted("negotiation given up in order"),
            Some(Reason::RequestMagic) => Outcome::Rejected("magic of a request"),
            _ if served.opened > 0 => Outcome::Accepted("an export opened, no request valid"),
            Some(Reason::EndOfStream) => Outcome::Accepted("ended between two messages"),
            Some(Reason::Truncated) => Outcome::Rejected("ended within a message"),
            Some(Reason::ClientFlags { .. }) => Outcome::Rejected("client flags"),
            Some(Reason::NotFixedNewstyle { .. }) => Outcome::Rejected("no fixed newstyle"),
            Some(Reason::OptionMagic) => Outcome::Rejected("magic of an option"),
            Some(Reason::TooManyOptions { .. }) => Outcome::Rejected("too many options"),
            Some(Reason::OptionTooLong { .. }) => Outcome::Rejected("an option too long"),
            Some(Reason::ExportRefused) => Outcome::Rejected("export refused"),
            Some(Reason::Tls { .. }) => Outcome::Rejected("TLS"),
            None => Outcome::Rejected("no reason"),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        self.served.all()
    }
}

#[test]
fn whatever_a_client_says_is_answered_or_refused() {
    run(&mut Nbd::new(), 100_000);
}
