//! TLS through the daemon, with other people's clients.

mod support;

use std::net::{IpAddr, UdpSocket};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{Daemon, MIB, Scratch, installed, run, text, try_run};

/// An address of this machine that is not the loopback's.
fn outer_address() -> Option<IpAddr> {
    // Nothing is sent: the kernel only looks from where it would be.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// An authority in `ca.pem`, a certificate of it for the daemon, and directories as libnbd wants
/// them: `client` has a certificate too, `stranger` has none.
fn certificates(scratch: &Scratch, names: &[String]) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let issue = |names: &[String], certificate: &str, key: &str| {
        let pair = KeyPair::generate().unwrap();
        let issued = CertificateParams::new(names)
            .unwrap()
            .signed_by(&pair, &authority)
            .unwrap();
        std::fs::write(scratch.path(certificate), issued.pem()).unwrap();
        std::fs::write(scratch.path(key), pair.serialize_pem()).unwrap();
    };
    for directory in ["client", "stranger"] {
        std::fs::create_dir(scratch.path(directory)).unwrap();
        let file = scratch.path(directory).join("ca-cert.pem");
        std::fs::write(file, authority.pem()).unwrap();
    }
    std::fs::write(scratch.path("ca.pem"), authority.pem()).unwrap();
    issue(names, "server.pem", "server.key");
    let client = ["client".to_owned()];
    issue(&client, "client/client-cert.pem", "client/client-key.pem");
}

/// Starts a daemon that also listens on TCP with TLS; returns the URI for TCP.
fn start(scratch: &Scratch, address: &str, more: &[&str]) -> (Daemon, String) {
    let address = format!("tcp:{address}:0");
    let mut arguments = vec![
        "--nbd",
        &address,
        "--tls-cert",
        "server.pem",
        "--tls-key",
        "server.key",
    ];
    arguments.extend(more);
    let daemon = Daemon::cached(scratch, "writeback", &arguments);
    let exports = daemon.status(scratch)["exports"].clone();
    let uris = exports.as_array().unwrap().iter();
    let tcp = uris
        .filter_map(|uri| uri.as_str())
        .find(|uri| uri.starts_with("nbds://"))
        .unwrap_or_else(|| panic!("no export over TLS: {exports}"))
        .to_owned();
    (daemon, tcp)
}

#[test]
fn images_are_copied_over_tls() {
    if !(installed("nbdcopy") && installed("nbdinfo")) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.pattern("image", 16 * MIB);
    scratch.file("origin", 16 * MIB);
    scratch.file("cache", 16 * MIB);
    certificates(&scratch, &["127.0.0.1".to_owned()]);
    for more in [&[][..], &["--tls-ca", "ca.pem"]] {
        let (daemon, uri) = start(&scratch, "127.0.0.1", more);
        let with = |directory| format!("{uri}?tls-certificates={}", scratch.text(directory));
        let info = run("nbdinfo", &[&with("client")]);
        assert!(info.contains("with TLS"), "{info}");
        run(
            "nbdcopy",
            &["--flush", image.to_str().unwrap(), &with("client")],
        );
        run("nbdcopy", &[&with("client"), &scratch.text("out")]);
        assert!(std::fs::read(&image).unwrap() == std::fs::read(scratch.path("out")).unwrap());
        // A client without a certificate is let in unless an authority is asked for.
        let stranger = try_run("nbdinfo", &[&with("stranger")]);
        assert_eq!(
            stranger.status.success(),
            more.is_empty(),
            "{}",
            text(&stranger)
        );
        daemon.stop();
    }
}

/// Plaintext is for this machine alone, unless the daemon is told otherwise.
#[test]
fn others_are_served_with_tls_only() {
    if !installed("nbdinfo") {
        return;
    }
    let Some(address) = outer_address().filter(IpAddr::is_ipv4) else {
        println!("skipped: this machine has no address but the loopback's");
        return;
    };
    let address = address.to_string();
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    certificates(&scratch, std::slice::from_ref(&address));
    for insecure in [false, true] {
        let more: &[&str] = if insecure { &["--insecure"] } else { &[] };
        let (daemon, uri) = start(&scratch, &address, more);
        let certified = format!("{uri}?tls-certificates={}", scratch.text("client"));
        assert!(run("nbdinfo", &[&certified]).contains("with TLS"));
        let plain = try_run("nbdinfo", &[&uri.replace("nbds://", "nbd://")]);
        assert_eq!(plain.status.success(), insecure, "{}", text(&plain));
        daemon.stop();
    }
}
