//! The server against the clients people use. A client that is not installed is skipped, saying
//! so.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_frontend::nbd::{TlsPolicy, TlsServer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{DISK_BYTES, Server};

/// A directory that disappears at the end of its test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-nbd-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server on a unix socket.
fn unix_server(scratch: &Scratch) -> Server {
    let server = Server::new(TlsPolicy::Off);
    server.listen_unix(&scratch.path("socket"));
    server
}

fn uri(scratch: &Scratch, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", scratch.text("socket"))
}

fn installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).exists()));
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Runs a client that must succeed; returns what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let (success, text) = try_run(program, arguments);
    assert!(success, "{program} {arguments:?}: {text}");
    text
}

fn try_run(program: &str, arguments: &[&str]) -> (bool, String) {
    // nbdsh belongs to the distribution's python, not to one that comes first in the path.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("timeout");
    command
        .env("PATH", path)
        .args(["60", program])
        .args(arguments);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}

/// A file of patterned data with a hole of zeroes, as large as the disk.
fn pattern(path: &Path) -> Vec<u8> {
    let mut data: Vec<u8> = (0..DISK_BYTES)
        .map(|index| ((index as u64 * 0x9e37_79b9) >> 13) as u8)
        .collect();
    data[1 << 20..3 << 20].fill(0);
    std::fs::write(path, &data).unwrap();
    data
}

#[test]
fn nbdinfo_sees_what_is_served() {
    if !installed("nbdinfo") {
        return;
    }
    let scratch = Scratch::new();
    unix_server(&scratch);
    let list = run("nbdinfo", &["--list", "--json", &uri(&scratch, "")]);
    for expected in [
        "newstyle-fixed",
        "\"structured\": true",
        "\"export-name\": \"disk\"",
        "\"export-name\": \"still\"",
        "\"description\": \"the disk of the tests\"",
        "\"can_multi_conn\": true",
        "\"can_fast_zero\": true",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"is_read_only\": true",
        "\"block_size_minimum\": 512",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
    ] {
        assert!(list.contains(expected), "{expected} is missing in {list}");
    }
    let one = run("nbdinfo", &["--json", &uri(&scratch, "disk")]);
    assert!(
        one.contains("base:allocation") && one.contains("forebay:state"),
        "{one}"
    );
    let (success, _) = try_run("nbdinfo", &[&uri(&scratch, "none")]);
    assert!(!success, "an unknown export is refused");
    let map = run("nbdinfo", &["--map=forebay:state", &uri(&scratch, "disk")]);
    assert!(map.contains("16777216"), "{map}");
}

#[test]
fn nbdcopy_there_and_back() {
    if !installed("nbdcopy") {
        return;
    }
    let scratch = Scratch::new();
    unix_server(&scratch);
    let data = pattern(&scratch.path("in"));
    let disk = uri(&scratch, "disk");
    run("nbdcopy", &["--flush", &scratch.text("in"), &disk]);
    run(
        "nbdcopy",
        &[
            "--connections=4",
            "--requests=64",
            &disk,
            &scratch.text("out"),
        ],
    );
    assert!(
        std::fs::read(scratch.path("out")).unwrap() == data,
        "what was copied comes back"
    );
    run("nbdcopy", &["--synchronous", &disk, &scratch.text("again")]);
    assert!(
        std::fs::read(scratch.path("again")).unwrap() == data,
        "one by one, too"
    );
}

#[test]
fn nbdsh_uses_every_command() {
    if !installed("nbdsh") {
        return;
    }
    let scratch = Scratch::new();
    unix_server(&scratch);
    let script = r#"
import errno
h.add_meta_context("base:allocation")
h.add_meta_context("forebay:state")
h.connect_uri(uri)
assert h.get_size() == 16 << 20
h.pwrite(b"a" * 4096, 4096, nbd.CMD_FLAG_FUA)
h.pwrite(b"b" * 512, 512)
assert h.pread(4096, 4096) == b"a" * 4096
chunks = []
def chunk(data, offset, status, error):
    chunks.append((bytes(data), offset, status))
assert h.pread_structured(512, 512, chunk, nbd.CMD_FLAG_DF) == b"b" * 512
assert chunks == [(b"b" * 512, 512, nbd.READ_DATA)], chunks
h.cache(4096, 0)
found = {}
def status(context, offset, entries, error):
    found[context] = entries
h.block_status(12288, 0, status)
assert found["base:allocation"] == [8192, 0, 4096, 2], found
assert found["forebay:state"] == [8192, 3, 4096, 0], found
h.flush()
h.block_status(12288, 0, status)
assert found["forebay:state"] == [12288, 0], found
h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(4096, 4096) == bytes(4096)
h.trim(4096, 0, nbd.CMD_FLAG_FUA)
h.set_strict_mode(0)
for offset, expected in [(16 << 20, errno.ENOSPC), (3, errno.EINVAL)]:
    try:
        h.pwrite(b"c" * 512, offset)
        assert False
    except nbd.Error as error:
        assert error.errnum == expected, error
try:
    h.pread(512, 1 << 60)
    assert False
except nbd.Error as error:
    assert error.errnum == errno.EINVAL
big = b"0123456789abcdef" * (512 << 10)
h.pwrite(big, 0)
assert h.pread(len(big), 0) == big
h.shutdown()
print("done")
"#;
    let set = format!("uri = {:?}", uri(&scratch, "disk"));
    let text = run("nbdsh", &["-c", &set, "-c", script]);
    assert!(text.contains("done"), "{text}");
}

#[test]
fn nbdsh_without_structured_replies_and_with_export_name() {
    if !installed("nbdsh") {
        return;
    }
    let scratch = Scratch::new();
    unix_server(&scratch);
    for flags in [
        "0",
        "nbd.HANDSHAKE_FLAG_FIXED_NEWSTYLE",
        "nbd.HANDSHAKE_FLAG_MASK",
    ] {
        let script = format!(
            r#"
h.set_request_structured_replies(False)
h.set_handshake_flags({flags})
h.set_export_name("disk")
h.connect_unix({:?})
assert not h.get_structured_replies_negotiated()
h.pwrite(b"x" * 512, 0)
assert h.pread(512, 0) == b"x" * 512
print("done")
"#,
            scratch.text("socket")
        );
        assert!(run("nbdsh", &["-c", &script]).contains("done"));
    }
}

#[test]
fn a_read_only_export_stays_as_it_is() {
    if !installed("nbdsh") {
        return;
    }
    let scratch = Scratch::new();
    unix_server(&scratch);
    let script = format!(
        r#"
import errno
h.set_strict_mode(0)
h.connect_uri({:?})
for write in [lambda: h.pwrite(bytes(512), 0), lambda: h.zero(512, 0), lambda: h.trim(512, 0)]:
    try:
        write()
        assert False
    except nbd.Error as error:
        assert error.errnum == errno.EPERM, error
assert h.pread(512, 0) == bytes(512)
print("done")
"#,
        uri(&scratch, "still")
    );
    assert!(run("nbdsh", &["-c", &script]).contains("done"));
}

#[test]
fn qemu_img_and_qemu_io() {
    if !installed("qemu-img") || !installed("qemu-io") {
        return;
    }
    let scratch = Scratch::new();
    unix_server(&scratch);
    pattern(&scratch.path("in"));
    let disk = format!("nbd:unix:{}:exportname=disk", scratch.text("socket"));
    run(
        "qemu-img",
        &[
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            &scratch.text("in"),
            &disk,
        ],
    );
    run(
        "qemu-img",
        &[
            "compare",
            "-f",
            "raw",
            "-F",
            "raw",
            &scratch.text("in"),
            &disk,
        ],
    );
    let info = run("qemu-img", &["info", "-f", "raw", &disk]);
    assert!(info.contains("16 MiB"), "{info}");
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &disk]);
    assert!(map.contains("\"zero\": true"), "{map}");
    let text = run(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "write -P 7 0 1M",
            "-c",
            "read -P 7 0 1M",
            "-c",
            "write -z 512k 64k",
            "-c",
            "read -P 0 512k 64k",
            "-c",
            "write -f -P 9 3k 1k",
            "-c",
            "read -P 9 3k 1k",
            "-c",
            "discard 1M 1M",
            "-c",
            "flush",
            "-c",
            "aio_write -P 3 2M 4M",
            "-c",
            "aio_flush",
            "-c",
            "read -P 3 2M 4M",
            &disk,
        ],
    );
    assert!(!text.contains("verification failed"), "{text}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !installed("fio") || !run("fio", &["--enghelp"]).contains("nbd") {
        println!("skipped: fio has no nbd engine");
        return;
    }
    let scratch = Scratch::new();
    unix_server(&scratch);
    let uri = format!("--uri={}", uri(&scratch, "disk"));
    let text = run(
        "fio",
        &[
            "--name=verify",
            "--verify_state_save=0",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=512-256k",
            "--ba=512",
            "--size=16m",
            "--io_size=64m",
            "--iodepth=32",
            "--verify=crc32c",
            "--fsync=50",
            "--randrepeat=1",
        ],
    );
    assert!(text.contains("err= 0"), "{text}");
}

/// An authority, and a certificate of it for the server and for clients.
fn certificates(scratch: &Scratch) -> (String, String, String) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new([name.to_owned()]).unwrap();
        (
            parameters.signed_by(&key, &authority).unwrap().pem(),
            key.serialize_pem(),
        )
    };
    let (certificate, key) = issue("localhost");
    let (client_certificate, client_key) = issue("client");
    for with_certificate in [true, false] {
        let dir = scratch.path(if with_certificate {
            "client"
        } else {
            "stranger"
        });
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("ca-cert.pem"), authority.pem()).unwrap();
        if with_certificate {
            std::fs::write(dir.join("client-cert.pem"), &client_certificate).unwrap();
            std::fs::write(dir.join("client-key.pem"), &client_key).unwrap();
        }
    }
    (certificate, key, authority.pem())
}

#[test]
fn tls_with_and_without_client_certificates() {
    if !installed("nbdcopy") || !installed("nbdinfo") {
        return;
    }
    let scratch = Scratch::new();
    let (certificate, key, authority) = certificates(&scratch);
    let data = pattern(&scratch.path("in"));
    for mutual in [false, true] {
        let server = TlsServer::from_pem(
            certificate.as_bytes(),
            key.as_bytes(),
            mutual.then_some(authority.as_bytes()),
        )
        .unwrap();
        let port = Server::new(TlsPolicy::Required(server)).listen_tcp().port();
        let uri = |scheme: &str, dir: &str| {
            let dir = scratch.text(dir);
            format!("{scheme}://localhost:{port}/disk?tls-certificates={dir}")
        };
        let disk = uri("nbds", "client");
        let info = run("nbdinfo", &[&disk]);
        assert!(info.contains("with TLS"), "{info}");
        run("nbdcopy", &["--flush", &scratch.text("in"), &disk]);
        run("nbdcopy", &[&disk, &scratch.text("out")]);
        assert!(
            std::fs::read(scratch.path("out")).unwrap() == data,
            "what was copied comes back"
        );
        let (plain, text) = try_run("nbdinfo", &[&format!("nbd://localhost:{port}/disk")]);
        assert!(!plain, "no service without TLS: {text}");
        let (stranger, text) = try_run("nbdinfo", &[&uri("nbds", "stranger")]);
        assert_eq!(stranger, !mutual, "{text}");
    }
}

#[test]
fn qemu_over_tls() {
    if !installed("qemu-io") {
        return;
    }
    let scratch = Scratch::new();
    let (certificate, key, _) = certificates(&scratch);
    let server = TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), None).unwrap();
    let port = Server::new(TlsPolicy::Required(server)).listen_tcp().port();
    let credentials = format!(
        "tls-creds-x509,id=tls,endpoint=client,dir={}",
        scratch.text("client")
    );
    let image = format!(
        "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host=localhost,file.server.port={port},file.export=disk,file.tls-creds=tls"
    );
    let text = run(
        "qemu-io",
        &[
            "--object",
            &credentials,
            "--image-opts",
            "-c",
            "write -P 7 0 8M",
            "-c",
            "read -P 7 0 8M",
            "-c",
            "flush",
            &image,
        ],
    );
    assert!(!text.contains("verification failed"), "{text}");
}
