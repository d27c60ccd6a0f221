//! Connections that stop talking, at every stage and on every listener: clients go on as before,
//! and new ones are let in.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use support::nbd::Client;
use support::{Daemon, LIMIT, MIB, Scratch, until};

/// The connections that are open at a time, over all listeners.
const CONNECTIONS: usize = 1000;
/// The time until a connection of a listener comes back: each of 250 after ten seconds, as a client
/// would that tries again.
const RETURN: Duration = Duration::from_millis(40);
/// Requests of a window, so that its 99th percentile is of several requests.
const REQUESTS: usize = 400;
/// Windows before and during; their medians are compared. A burst of other work on this machine
/// spoils some windows, and would have to last for half of them to count.
const WINDOWS: usize = 15;

/// The most measurements while connections stall, and the time between them.
const MEASUREMENTS: usize = 40;
const BETWEEN: Duration = Duration::from_millis(250);

/// Held by each test: a test beside it would be work of others.
static ALONE: Mutex<()> = Mutex::new(());

trait Stream: Read + Write + Send {
    fn limit(&self);
}

impl Stream for UnixStream {
    fn limit(&self) {
        self.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        self.set_write_timeout(Some(Duration::from_secs(1)))
            .unwrap();
    }
}

impl Stream for TcpStream {
    fn limit(&self) {
        self.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        self.set_write_timeout(Some(Duration::from_secs(1)))
            .unwrap();
    }
}

/// A way to say something and then stop.
type Stall = fn(&mut dyn Stream) -> std::io::Result<()>;

/// Stalls before an export is open.
const OPENING: &[Stall] = &[silent, half_flags, half_option, unread_answer];
/// Stalls with an open export.
const OPENED: &[Stall] = &[half_request, half_payload];
/// Stalls in TLS.
const SHAKING_HANDS: &[Stall] = &[half_hello, whole_hello];

fn silent(_: &mut dyn Stream) -> std::io::Result<()> {
    Ok(())
}

fn greeted(stream: &mut dyn Stream) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 18])
}

fn half_flags(stream: &mut dyn Stream) -> std::io::Result<()> {
    greeted(stream)?;
    stream.write_all(&[0, 0])
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut option = b"IHAVEOPT".to_vec();
    option.extend(number.to_be_bytes());
    option.extend((data.len() as u32).to_be_bytes());
    option.extend(data);
    option
}

fn half_option(stream: &mut dyn Stream) -> std::io::Result<()> {
    greeted(stream)?;
    stream.write_all(&3u32.to_be_bytes())?;
    stream.write_all(&option(7, b"origin")[..11])
}

/// NBD_OPT_LIST, whose answer stays unread.
fn unread_answer(stream: &mut dyn Stream) -> std::io::Result<()> {
    greeted(stream)?;
    stream.write_all(&3u32.to_be_bytes())?;
    stream.write_all(&option(3, b""))
}

/// NBD_OPT_STARTTLS, and the first bytes of a ClientHello.
fn half_hello(stream: &mut dyn Stream) -> std::io::Result<()> {
    greeted(stream)?;
    stream.write_all(&3u32.to_be_bytes())?;
    stream.write_all(&option(5, b""))?;
    stream.read_exact(&mut [0; 20])?;
    stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 7, 7])
}

/// A whole ClientHello of TLS 1.3, for which the server signs; nothing after that.
fn whole_hello(stream: &mut dyn Stream) -> std::io::Result<()> {
    let extension = |number: u16, data: &[u8]| {
        let mut extension = number.to_be_bytes().to_vec();
        extension.extend((data.len() as u16).to_be_bytes());
        extension.extend(data);
        extension
    };
    let share = [&[0, 36, 0, 29, 0, 32][..], &[9; 32]].concat();
    let extensions = [
        extension(43, &[2, 3, 4]),
        extension(10, &[0, 2, 0, 29]),
        extension(13, &[0, 2, 4, 3]),
        extension(51, &share),
    ]
    .concat();
    let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut hello = vec![0x16, 3, 1];
    hello.extend((body.len() as u16 + 4).to_be_bytes());
    hello.extend([1, 0]);
    hello.extend((body.len() as u16).to_be_bytes());
    hello.extend(body);
    greeted(stream)?;
    stream.write_all(&3u32.to_be_bytes())?;
    stream.write_all(&option(5, b""))?;
    stream.read_exact(&mut [0; 20])?;
    stream.write_all(&hello)?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer, [0x16, 3, 3], "a ServerHello");
    Ok(())
}

/// NBD_OPT_EXPORT_NAME of the only export.
fn let_in(stream: &mut dyn Stream) -> std::io::Result<()> {
    greeted(stream)?;
    stream.write_all(&3u32.to_be_bytes())?;
    stream.write_all(&option(1, b""))?;
    stream.read_exact(&mut [0; 10])
}

fn half_request(stream: &mut dyn Stream) -> std::io::Result<()> {
    let_in(stream)?;
    stream.write_all(&[0x25, 0x60, 0x95, 0x13, 0, 0])
}

/// A write of 64 KiB, and half of its data.
fn half_payload(stream: &mut dyn Stream) -> std::io::Result<()> {
    let_in(stream)?;
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend([0, 0, 0, 1]);
    request.extend([0; 8]);
    request.extend(MIB.to_be_bytes());
    request.extend((64u32 << 10).to_be_bytes());
    request.extend([9; 32 << 10]);
    stream.write_all(&request)
}

fn half_command(stream: &mut dyn Stream) -> std::io::Result<()> {
    stream.write_all(b"{\"method\":\"org.forebay.St")
}

fn half_head(stream: &mut dyn Stream) -> std::io::Result<()> {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: loc")
}

/// A listener, and the ways of its connections to stall.
#[derive(Clone)]
struct Door {
    place: Place,
    stalls: Vec<Stall>,
}

#[derive(Clone)]
enum Place {
    Unix(PathBuf),
    Tcp(String),
}

impl Place {
    fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        let stream: Box<dyn Stream> = match self {
            Place::Unix(path) => Box::new(UnixStream::connect(path)?),
            Place::Tcp(address) => Box::new(TcpStream::connect(address)?),
        };
        stream.limit();
        Ok(stream)
    }
}

/// Opens so many connections of a door as fast as it lets them in, and then has another stall in
/// the place of the oldest every [`RETURN`], until it is told to end.
fn keep_stalled(door: &Door, count: usize, end: &AtomicBool, begun: &AtomicUsize) {
    let mut stalled = std::collections::VecDeque::new();
    for stall in door.stalls.iter().cycle() {
        if end.load(Ordering::Acquire) {
            return;
        }
        // The daemon may close any of them early.
        if let Ok(mut stream) = door.place.connect() {
            let _ = stall(&mut *stream);
            stalled.push_back(stream);
        }
        if stalled.len() > count {
            stalled.pop_front();
            std::thread::sleep(RETURN);
        } else {
            begun.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The median over all windows of the 99th percentile of a client's reads.
fn p99(client: &mut Client) -> Duration {
    let mut windows: Vec<Duration> = (0..WINDOWS)
        .map(|_| {
            let mut times: Vec<Duration> = (0..REQUESTS)
                .map(|at| {
                    let began = Instant::now();
                    client.read((at as u64 % 64) * 4096, 4096);
                    began.elapsed()
                })
                .collect();
            times.sort();
            times[REQUESTS * 99 / 100]
        })
        .collect();
    windows.sort();
    windows[WINDOWS / 2]
}

fn resident_bytes(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// Raises this process's limit of open files, which daemons inherit.
fn allow_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// Has connections stall on all listeners of a daemon, and looks at the others meanwhile.
fn clients_go_on(scratch: &Scratch, daemon: Daemon, tcp: Door) {
    let http = support::http::address(&daemon, scratch);
    let doors = [
        Door {
            place: Place::Unix(scratch.path("nbd")),
            stalls: [OPENING, OPENED].concat(),
        },
        tcp,
        Door {
            place: Place::Unix(scratch.path("control")),
            stalls: vec![silent, half_command],
        },
        Door {
            place: Place::Tcp(http.clone()),
            stalls: vec![silent, half_head],
        },
    ];
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &vec![1; 256 << 10]);
    client.flush();
    p99(&mut client);
    let before = p99(&mut client);
    let resident_before = resident_bytes(&daemon);
    let (end, begun) = (
        Arc::new(AtomicBool::default()),
        Arc::new(AtomicUsize::default()),
    );
    let count = CONNECTIONS / doors.len();
    let threads: Vec<_> = doors
        .iter()
        .map(|door| {
            let (door, end, begun) = (door.clone(), Arc::clone(&end), Arc::clone(&begun));
            std::thread::spawn(move || keep_stalled(&door, count, &end, &begun))
        })
        .collect();
    until("the connections to stall", || {
        client.read(0, 4096);
        begun.load(Ordering::Acquire) >= CONNECTIONS
    });
    // Work of others on this machine passes, and the connections stay: one measurement of several
    // must be as good as it was.
    let mut during = vec![p99(&mut client)];
    while during[during.len() - 1] > before * 2 && during.len() < MEASUREMENTS {
        std::thread::sleep(BETWEEN);
        during.push(p99(&mut client));
    }
    // New ones are let in everywhere, by each listener.
    let began = Instant::now();
    let mut new = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(new.read(0, 4096), vec![1; 4096]);
    println!("a new client had its answer after {:?}", began.elapsed());
    assert!(began.elapsed() < LIMIT);
    assert_eq!(daemon.status(scratch)["volumes"][0]["name"], "origin");
    assert!(
        support::http::get(&http, "/metrics", &http)
            .1
            .contains("forebay_")
    );
    let grown = resident_bytes(&daemon).saturating_sub(resident_before);
    println!("{} KiB more", grown >> 10);
    assert!(grown < 96 * MIB, "{grown} bytes more");
    end.store(true, Ordering::Release);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(client.read(0, 4096), vec![1; 4096]);
    // Others may have been busy from the first to the last of these: then they are still.
    let after = p99(&mut client);
    println!("p99 {before:?} before, {during:?} during, {after:?} after");
    assert!(
        during.last().unwrap() <= &(before.max(after) * 2),
        "p99 {before:?} before, {during:?} during, {after:?} after"
    );
    let lines = daemon.log().lines().count();
    assert!(lines < 100, "{}", daemon.log());
    daemon.stop();
}

/// First with plain TCP, then with TLS; not at the same time, because they would measure each
/// other.
#[test]
fn stalled_connections_hold_nobody_up() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    allow_files();
    plain_connections();
    tls_handshakes();
}

fn plain_connections() {
    let scratch = Scratch::new();
    scratch.file("origin", 16 * MIB);
    scratch.file("cache", 64 * MIB);
    let more = [
        "--nbd",
        "tcp:127.0.0.1:0",
        "--nbd-insecure",
        "--http",
        "127.0.0.1:0",
    ];
    let daemon = Daemon::cached(&scratch, "writeback", &more);
    let tcp = Door {
        place: Place::Tcp(tcp_address(&scratch, &daemon, "nbd://")),
        stalls: [OPENING, OPENED].concat(),
    };
    clients_go_on(&scratch, daemon, tcp);
}

fn tls_handshakes() {
    let scratch = Scratch::new();
    scratch.file("origin", 16 * MIB);
    scratch.file("cache", 64 * MIB);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(scratch.path("server.pem"), made.cert.pem()).unwrap();
    std::fs::write(scratch.path("server.key"), made.signing_key.serialize_pem()).unwrap();
    let more = [
        "--nbd",
        "tcp:127.0.0.1:0",
        "--tls-cert",
        "server.pem",
        "--tls-key",
        "server.key",
        "--http",
        "127.0.0.1:0",
    ];
    let daemon = Daemon::cached(&scratch, "writeback", &more);
    let tcp = Door {
        place: Place::Tcp(tcp_address(&scratch, &daemon, "nbds://")),
        stalls: [OPENING, SHAKING_HANDS].concat(),
    };
    clients_go_on(&scratch, daemon, tcp);
}

/// Host and port of the TCP listener.
fn tcp_address(scratch: &Scratch, daemon: &Daemon, scheme: &str) -> String {
    let exports = daemon.status(scratch)["exports"].clone();
    let mut uris = exports
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|uri| uri.as_str());
    let uri = uris.find_map(|uri| uri.strip_prefix(scheme)).unwrap();
    uri.split('/').next().unwrap().to_owned()
}

/// All places that a listener's clients can have are taken: those of another listener are not, and
/// clients that stopped in the middle of a message make room for who waits.
#[test]
fn clients_that_stopped_give_their_places_away_and_those_that_wait_do_not() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    allow_files();
    let scratch = Scratch::new();
    scratch.file("origin", 16 * MIB);
    let more = [
        "--origin",
        "origin",
        "--nbd",
        "tcp:127.0.0.1:0",
        "--nbd-insecure",
    ];
    let daemon = Daemon::start(&scratch, &more);
    let place = Place::Tcp(tcp_address(&scratch, &daemon, "nbd://"));
    let mut idle: Vec<Box<dyn Stream>> = (0..10).map(|_| place.connect().unwrap()).collect();
    for stream in &mut idle {
        let_in(&mut **stream).unwrap();
    }
    let mut stopped = Vec::new();
    // The first that has no answer within a second.
    loop {
        let mut stream = place.connect().unwrap();
        if half_request(&mut *stream).is_err() {
            break;
        }
        stopped.push(stream);
    }
    assert_eq!(
        idle.len() + stopped.len(),
        256 - 16,
        "16 are kept for the unix socket"
    );
    let began = Instant::now();
    let mut other = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(other.read(0, 4096), vec![0; 4096]);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "by another listener"
    );
    // Ten seconds after they stopped, or a few tries later.
    until("a place for one more", || {
        let mut stream = place.connect().unwrap();
        let_in(&mut *stream).is_ok()
    });
    assert!(
        daemon.log().contains("stopped in the middle of a message"),
        "{}",
        daemon.log()
    );
    for stream in &mut idle {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend([0; 20]);
        request.extend(512u32.to_be_bytes());
        stream.write_all(&request).unwrap();
        stream.read_exact(&mut [0; 16 + 512]).unwrap();
    }
    daemon.stop();
}
