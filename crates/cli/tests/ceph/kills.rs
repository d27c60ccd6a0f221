//! The server of the image, the OSD behind it and the daemon are killed in turn, under load.

use std::path::Path;
use std::sync::atomic::Ordering;

use forebay_random::SplitMix64;

use crate::cluster::{Cluster, POOL, Process};
use crate::rounds;
use crate::support::model::{Model, ORIGIN_BYTES, write_some};
use crate::support::nbd::Client;
use crate::support::{Daemon, MIB, run, until};

/// A file system lies behind the blocks that are written at random.
const FILE_SYSTEM_BYTES: u64 = 32 * MIB;
/// An OSD is away for longer than the usual 30 seconds on a busy machine.
const TIMEOUT: &str = "origin-timeout=600";

#[derive(Clone, Copy, Debug)]
enum Victim {
    Server,
    Osd,
    Daemon,
}

const TURNS: [Victim; 3] = [Victim::Server, Victim::Osd, Victim::Daemon];

/// I26: everything that was acknowledged is read again after each kill, and at the end the image
/// alone has it.
#[test]
fn the_image_has_everything_after_kills_and_a_hand_over() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    for mode in ["writeback", "writethrough"] {
        kill_again_and_again(&mut cluster, mode, rounds().div_ceil(2));
    }
}

fn start(cluster: &Cluster, mode: &str) -> Daemon {
    let socket = cluster.scratch.text("server");
    let origin = format!("nbd+unix:///{mode}?socket={socket}&{TIMEOUT}");
    let cache = ["--cache", "cache", "--create", "--mode", mode];
    Daemon::start(
        &cluster.scratch,
        &[&["--origin", &origin][..], &cache].concat(),
    )
}

fn connect(cluster: &Cluster) -> Client {
    Client::connect(&cluster.scratch.path("nbd")).unwrap()
}

/// The image and the volume have the name of the mode.
fn kill_again_and_again(cluster: &mut Cluster, mode: &str, rounds: u64) {
    let image = format!("{POOL}/{mode}");
    cluster.run("rbd", &["create", "--size", "128M", &image]);
    let socket = cluster.scratch.path("server");
    // Less than is written between two kills, so that write-back never rests.
    cluster.scratch.file("cache", 16 * MIB);
    let mut server = cluster.serve(mode, &socket);
    let mut daemon = start(cluster, mode);
    let mut client = connect(cluster);
    let file_system = make_file_system(cluster);
    for (number, piece) in file_system.chunks(MIB as usize).enumerate() {
        client.write(ORIGIN_BYTES + number as u64 * MIB, piece);
    }
    let (mut random, mut model, mut version) = (SplitMix64::new(27), Model::default(), 0);
    for round in 0..rounds {
        let victim = TURNS[(round % 3) as usize];
        println!("{mode}, round {round}: {victim:?}");
        let replies = 500 + random.below(1500);
        if let Victim::Daemon = victim {
            write_some(&mut client, &mut model, &mut random, &mut version, replies);
            daemon.kill();
            daemon = start(cluster, mode);
            client = connect(cluster);
            model.check_and_settle(&mut client);
            continue;
        }
        let answered = client.answered();
        let at = answered.load(Ordering::Relaxed) + 1 + random.below(replies / 2);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                write_some(&mut client, &mut model, &mut random, &mut version, replies);
            });
            until("writes to be answered", || {
                answered.load(Ordering::Relaxed) >= at || writer.is_finished()
            });
            kill(cluster, victim, &mut server, mode, &socket);
        });
        model.finish(&mut client);
        model.check(&mut client);
    }
    write_some(&mut client, &mut model, &mut random, &mut version, 500);
    daemon.command(&cluster.scratch, &["hand-over", mode]);
    // Whatever it did not make durable is lost now.
    server.kill();
    daemon.stop();
    let whole = cluster.export(mode);
    model.check_image(&whole);
    check_file_system(cluster, &whole[ORIGIN_BYTES as usize..], &file_system);
}

/// Kills one of the two that the daemon's origin needs, and starts it again.
fn kill(cluster: &mut Cluster, victim: Victim, server: &mut Process, image: &str, socket: &Path) {
    if let Victim::Osd = victim {
        cluster.kill_osd();
        cluster.start_osd();
    } else {
        server.kill();
        *server = cluster.serve(image, socket);
    }
}

/// An ext4 with a few files.
fn make_file_system(cluster: &Cluster) -> Vec<u8> {
    let scratch = &cluster.scratch;
    let tree = scratch.path("tree");
    std::fs::create_dir_all(&tree).unwrap();
    for number in 0..20 {
        scratch.pattern(&format!("tree/{number}"), (number + 1) * 10_000);
    }
    let image = scratch.file("ext4", FILE_SYSTEM_BYTES);
    let (tree, image) = (tree.to_str().unwrap(), image.to_str().unwrap());
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-d", tree, image]);
    std::fs::read(image).unwrap()
}

fn check_file_system(cluster: &Cluster, found: &[u8], written: &[u8]) {
    let image = cluster.scratch.path("found");
    std::fs::write(&image, found).unwrap();
    run("e2fsck", &["-f", "-n", image.to_str().unwrap()]);
    assert!(found == written, "the file system is another one");
}
