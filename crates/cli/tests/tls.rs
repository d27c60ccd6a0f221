//! TLS through the daemon, with other people's clients.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use support::certificates::certificates;
use support::{Daemon, MIB, Scratch, installed, run, text, try_run};

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

/// The number of the answer to a client on TCP that asks for an export without TLS.
fn plain_answer(uri: &str) -> u32 {
    let address = uri.trim_start_matches("nbds://");
    let address = address.split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    // NBD_OPT_GO, for the export `origin`, without questions.
    let name = b"origin";
    let mut go = 3u32.to_be_bytes().to_vec();
    go.extend(b"IHAVEOPT");
    go.extend(7u32.to_be_bytes());
    go.extend((name.len() as u32 + 6).to_be_bytes());
    go.extend((name.len() as u32).to_be_bytes());
    go.extend(name);
    go.extend([0, 0]);
    stream.write_all(&go).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(reply[12..16].try_into().unwrap())
}

/// S2, S12: neither the loopback's addresses nor a word about insecurity spare a client TLS.
#[test]
fn no_client_on_tcp_is_served_without_tls_where_there_is_a_certificate() {
    /// NBD_REP_ERR_TLS_REQD.
    const TLS_REQUIRED: u32 = (1 << 31) + 5;
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    certificates(&scratch, &["127.0.0.1".to_owned()]);
    let words: [&[&str]; 4] = [
        &[],
        &["--nbd-insecure"],
        &["--http-insecure", "--tls-ca", "ca.pem"],
        &["--nbd-insecure", "--tls-ca", "ca.pem"],
    ];
    for more in words {
        let (daemon, uri) = start(&scratch, "127.0.0.1", more);
        assert_eq!(plain_answer(&uri), TLS_REQUIRED, "{more:?}");
        daemon.stop();
    }
}
