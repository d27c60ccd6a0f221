//! Network origins over TLS, with nbdkit as the server.

mod support;

use support::certificates::certificates;
use support::nbd::Client;
use support::nbdkit::Server;
use support::{Daemon, MIB, Scratch, forebay_says, installed};

/// A directory with certificates, and one with those of another authority.
fn prepared() -> (Scratch, Scratch) {
    let names = ["localhost".to_owned()];
    let (scratch, others) = (Scratch::new(), Scratch::new());
    certificates(&scratch, &names);
    certificates(&others, &names);
    std::fs::create_dir(scratch.path("served")).unwrap();
    for (from, to) in [
        ("ca.pem", "ca-cert.pem"),
        ("server.pem", "server-cert.pem"),
        ("server.key", "server-key.pem"),
    ] {
        std::fs::copy(scratch.path(from), scratch.path("served").join(to)).unwrap();
    }
    scratch.file("cache", 64 * MIB);
    (scratch, others)
}

const SECURE: [&str; 4] = [
    "--tls=require",
    "--tls-certificates=served",
    "memory",
    "32M",
];

fn uri(scheme: &str, scratch: &Scratch, more: &str) -> String {
    let socket = scratch.text("server");
    format!("{scheme}+unix:///disk?socket={socket}{more}")
}

fn certificates_in(directory: &str) -> String {
    format!("&tls-certificates={directory}")
}

fn start(scratch: &Scratch, origin: &str) -> Daemon {
    let cache = ["--cache", "cache", "--create", "--mode", "writeback"];
    Daemon::start(scratch, &[&["--origin", origin][..], &cache].concat())
}

#[test]
fn a_volume_is_served_from_an_origin_over_tls() {
    if !installed("nbdkit") {
        return;
    }
    let (scratch, _) = prepared();
    let verifying = [&["--tls-verify-peer"][..], &SECURE].concat();
    // With a certificate of the client's own, and without.
    for (arguments, directory) in [(&SECURE[..], "stranger"), (&verifying, "client")] {
        let mut server = Server::nbdkit(&scratch, arguments);
        let origin = uri("nbds", &scratch, &certificates_in(directory));
        scratch.file("cache", 64 * MIB);
        let daemon = start(&scratch, &origin);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        let big: Vec<u8> = (0..4 * MIB).map(|byte| (byte % 251) as u8).collect();
        client.write(MIB, &big);
        client.flush();
        assert!(client.read(MIB, big.len() as u32) == big);
        assert!(client.read(16 * MIB, MIB as u32) == vec![0; MIB as usize]);
        // It returns without what it had in memory.
        daemon.command(&scratch, &["drain"]);
        server.kill();
        let _server = Server::nbdkit(&scratch, arguments);
        client.write(0, &[7; 4096]);
        daemon.command(&scratch, &["drain"]);
        assert!(client.read(20 * MIB, MIB as u32) == vec![0; MIB as usize]);
        assert!(daemon.log().contains("is there again"), "{}", daemon.log());
        drop(client);
        daemon.stop();
    }
}

#[test]
fn an_origin_that_cannot_be_trusted_is_refused_in_words() {
    if !installed("nbdkit") {
        return;
    }
    let (scratch, others) = prepared();
    let says = |origin: &str, words: &[&str]| {
        let arguments = [
            "serve", "--origin", origin, "--cache", "cache", "--create", "--nbd", "unix:nbd",
        ];
        let code = 1;
        forebay_says(&scratch, &arguments, code, words);
    };
    let right = certificates_in("stranger");
    {
        let _server = Server::nbdkit(&scratch, &SECURE);
        let foreign = certificates_in(&others.text("stranger"));
        says(
            &uri("nbds", &scratch, &foreign),
            &["invalid peer certificate"],
        );
        let other_name = format!("{right}&tls-hostname=elsewhere");
        says(&uri("nbds", &scratch, &other_name), &["not valid for name"]);
        says(&uri("nbd", &scratch, ""), &["it wants TLS", "nbds://"]);
        says(&uri("nbds", &scratch, ""), &["tls-certificates="]);
        says(
            &uri("nbds", &scratch, &certificates_in("nowhere")),
            &["cannot read"],
        );
    }
    let _server = Server::nbdkit(&scratch, &["memory", "32M"]);
    says(&uri("nbds", &scratch, &right), &["it has no TLS", "nbd://"]);
    let cache = std::fs::read(scratch.path("cache")).unwrap();
    assert!(cache.iter().all(|byte| *byte == 0), "nothing is written");
}
