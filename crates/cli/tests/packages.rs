//! Tarball, .deb and .rpm: built by the scripts of the tree, unpacked, installed, removed.
//!
//! `make dist` runs these with what it built (FOREBAY_DIST), whose binary is static. Otherwise they
//! build with the binary of this test. What a machine has no tools for is told, and left out.

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use support::nbd::Client;
use support::{Scratch, text, until};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Past the capture of the test.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a line of shell in a directory; `PACKAGES` is the directory of what was built.
fn shell(directory: &Path, line: &str) -> Output {
    Command::new("bash")
        .args(["-c", line])
        .current_dir(directory)
        .env("PACKAGES", built())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn shell_ok(directory: &Path, line: &str) -> String {
    let output = shell(directory, line);
    assert!(output.status.success(), "{line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn build(output: &Path) {
    let built = Command::new(tree().join("packaging/build-dist.sh"))
        .arg(env!("CARGO_BIN_EXE_forebay"))
        .arg(output)
        .env("COMPRESSION", "gzip")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built));
}

/// The directory of what is published.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| match std::env::var_os("FOREBAY_DIST") {
        Some(given) => given.into(),
        None => {
            let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
            build(&output);
            output
        }
    })
}

/// The tarball, unpacked in an empty directory; returns that of its contents.
fn unpacked(scratch: &Scratch) -> PathBuf {
    shell_ok(&scratch.path(""), "tar -xf $PACKAGES/forebay-*.tar.gz");
    let found = shell_ok(&scratch.path(""), "echo forebay-*-linux");
    scratch.path(found.trim())
}

/// The files below a directory, by their paths from there.
fn files(directory: &Path) -> BTreeSet<String> {
    let found = shell_ok(directory, "find . -type f -printf '%P\\n'");
    found.lines().map(str::to_owned).collect()
}

#[test]
fn checksums_are_those_of_the_files() {
    let said = shell_ok(
        built(),
        "sha256sum --check SHA256SUMS && ls forebay* | wc -l",
    );
    let checked = said.lines().filter(|line| line.ends_with(": OK")).count();
    assert_eq!(said.lines().last(), Some(&*checked.to_string()), "{said}");
    for (tool, ending) in [("dpkg-deb", ".deb"), ("rpmbuild", ".rpm")] {
        match has(tool) {
            true => assert!(said.contains(ending), "{said}"),
            false => tell(&format!("not run: no {ending}, as {tool} is not installed")),
        }
    }
}

#[test]
fn the_same_commit_makes_the_same_bytes() {
    if std::env::var_os("FOREBAY_DIST").is_some() {
        return tell("not run: built a second time, as FOREBAY_DIST is another binary's");
    }
    let scratch = Scratch::new();
    build(&scratch.path("again"));
    let sums = |directory: &Path| std::fs::read_to_string(directory.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&scratch.path("again")), sums(built()));
}

/// The core of the demo, with nothing but the tarball in an empty directory.
#[test]
fn the_tarball_serves_where_it_was_unpacked() {
    let scratch = Scratch::new();
    let directory = unpacked(&scratch);
    let serve = || {
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let child = Command::new("./forebay")
            .args("serve --origin origin --cache cache --mode writeback --age 1h".split(' '))
            .args("--nbd unix:nbd --control control --state-dir state".split(' '))
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut client = None;
        until("a daemon of the tarball", || {
            client = Client::connect(&directory.join("nbd")).ok();
            client.is_some()
        });
        (child, client.unwrap())
    };
    shell_ok(
        &directory,
        "truncate -s 64M origin && ./forebay create cache --size 32M --state-dir state",
    );
    let (mut child, mut client) = serve();
    client.write(0, &[7; 4096]);
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut child, mut client) = serve();
    assert_eq!(client.read(0, 4096), vec![7; 4096]);
    drop(client);
    shell_ok(&directory, "./forebay stop --control control");
    assert!(child.wait().unwrap().success());
    let said = shell_ok(&directory, "./forebay check cache");
    assert!(
        said.contains("4 KiB dirty") && said.contains("stopped in order"),
        "{said}"
    );
}

#[test]
fn the_tarball_installs_what_it_has() {
    let scratch = Scratch::new();
    let directory = unpacked(&scratch);
    let root = scratch.text("root");
    // An administrator who disabled the target since has it left alone.
    for is_first in [true, false] {
        let said = shell_ok(&directory, &format!("DESTDIR={root} ./install.sh"));
        let enables = said.contains("systemctl enable forebay.target");
        assert_eq!(enables, is_first, "{said}");
    }
    assert_eq!(
        files(&directory.join("usr")),
        files(&scratch.path("root/usr"))
    );
    shell_ok(&scratch.path("root"), "usr/bin/forebay --version");
    let legal = shell_ok(
        &directory,
        "ls LICENSE-APACHE LICENSE-MIT LICENSE-uPlot README.md",
    );
    assert_eq!(legal.lines().count(), 4);
}

/// Tarball, .deb and .rpm are made from one list; they differ where distributions do.
#[test]
fn packages_have_the_files_of_the_tarball() {
    let scratch = Scratch::new();
    let tarball = files(&unpacked(&scratch).join("usr"));
    for wanted in [
        "bin/forebay",
        "lib/systemd/system/forebay@.service",
        "lib/udev/rules.d/60-forebay.rules",
        "share/man/man8/forebay-serve.8.gz",
        "share/bash-completion/completions/forebay",
        "share/doc/forebay/examples/forebay.toml",
        "share/doc/forebay/manual/recipes/vm.md",
    ] {
        assert!(tarball.contains(wanted), "{wanted}: {tarball:?}");
    }
    let differs = |name: &String| {
        name.contains("zsh/")
            || name.contains("initramfs-tools/")
            || name.starts_with("share/licenses/")
            || name == "share/doc/forebay/copyright"
            || name == "share/doc/forebay/changelog.gz"
    };
    let same = |found: BTreeSet<String>| found.into_iter().filter(|name| !differs(name));
    let tarball: Vec<String> = same(tarball).collect();
    let unpack = |how: &str| {
        let root = scratch.path("other");
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir(&root).unwrap();
        shell_ok(&root, how);
        same(files(&root.join("usr"))).collect::<Vec<_>>()
    };
    if has("dpkg-deb") {
        assert_eq!(unpack("dpkg-deb -x $PACKAGES/forebay_*.deb ."), tarball);
    }
    if has("rpmbuild") {
        let list =
            "rpm -qp --nosignature --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' $PACKAGES/*.rpm";
        let found = shell_ok(&scratch.path(""), list);
        let found = found.lines().filter(|line| line.starts_with('-'));
        let found = found.filter_map(|line| line.split_once(" /usr/"));
        let found = found.map(|(_, name)| name.to_owned()).collect();
        assert_eq!(same(found).collect::<Vec<_>>(), tarball);
    }
}

/// A cache that holds dirty data, configured in the root file system of a package's test.
struct Configured {
    scratch: Scratch,
}

impl Configured {
    fn new() -> Configured {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.path("root/etc/forebay/state")).unwrap();
        shell_ok(&scratch.path(""), "truncate -s 32M origin");
        let program = env!("CARGO_BIN_EXE_forebay");
        let file = format!(
            "[cache]\ndevice = \"{}\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n[settings]\nage = 86400\n\
             [[volume]]\norigin = \"{}\"\nmode = \"writeback\"\n",
            scratch.text("cache"),
            scratch.text("nbd"),
            scratch.text("origin")
        );
        std::fs::write(scratch.path("root/etc/forebay/f.toml"), file).unwrap();
        shell_ok(&scratch.path(""), "truncate -s 16M cache");
        let mut daemon = Command::new(program)
            .args(
                "serve --config root/etc/forebay/f.toml --control control --state-dir state"
                    .split(' '),
            )
            .current_dir(scratch.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut client = None;
        until("the daemon", || {
            client = Client::connect(&scratch.path("nbd")).ok();
            client.is_some()
        });
        let mut client = client.unwrap();
        let ask = format!("{program} status --json --control control");
        // On a busy machine a write may bypass the cache.
        until("dirty data", || {
            client.write(0, &[7; 4096]);
            client.flush();
            let status = shell_ok(&scratch.path(""), &ask);
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            status["volumes"][0]["dirty_bytes"].as_u64() > Some(0)
        });
        drop(client);
        shell_ok(
            &scratch.path(""),
            &format!("{program} stop --control control"),
        );
        assert!(daemon.wait().unwrap().success());
        Configured { scratch }
    }

    fn drain(&self) {
        shell_ok(
            &self.scratch.path(""),
            &format!(
                "{} drain --offline --cache cache --origin origin --state-dir state",
                env!("CARGO_BIN_EXE_forebay")
            ),
        );
    }

    fn shell(&self, line: &str) -> Output {
        shell(&self.scratch.path(""), line)
    }

    fn shell_ok(&self, line: &str) -> String {
        shell_ok(&self.scratch.path(""), line)
    }

    fn has(&self, path: &str) -> bool {
        self.scratch.path("root").join(path).exists()
    }
}

/// Files belong to root in a package.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_debian_package_is_refused_its_removal_and_leaves_notes_at_a_purge() {
    if !has("dpkg") || !is_root() {
        return tell("not run: installed by dpkg, which needs dpkg and root");
    }
    let it = Configured::new();
    it.shell_ok("mkdir -p root/var/lib/dpkg/{info,updates,triggers} && touch root/var/lib/dpkg/{status,available}");
    let dpkg = "dpkg --root=$PWD/root --force-script-chrootless --force-depends --log=/dev/null";
    it.shell_ok(&format!("{dpkg} -i $PACKAGES/forebay_*.deb"));
    assert!(it.has("usr/lib/systemd/system/forebay.target"));
    // An upgrade over it.
    it.shell_ok(&format!("{dpkg} -i $PACKAGES/forebay_*.deb"));
    if has("deb-systemd-helper") {
        let link = "root/etc/systemd/system/sysinit.target.wants/forebay.target";
        it.shell_ok(&format!("test -L {link}"));
    }
    let refused = it.shell(&format!("{dpkg} -r forebay"));
    let said = text(&refused);
    assert!(!refused.status.success(), "removed while dirty: {said}");
    assert!(said.contains("holds 4 KiB of volume origin"), "{said}");
    assert!(it.has("usr/bin/forebay"));
    it.drain();
    it.shell_ok(&format!("{dpkg} -r forebay"));
    assert!(!it.has("usr/bin/forebay") && it.has("etc/forebay/f.toml"));

    // A37: that a cache was abandoned is remembered as long as its device may have it.
    it.shell_ok("echo {} > root/etc/forebay/state/x.abandoned");
    let said = text(&it.shell(&format!("{dpkg} -P forebay")));
    assert!(said.contains("state is kept"), "{said}");
    assert!(it.has("etc/forebay/state/x.abandoned") && !it.has("etc/forebay/f.toml"));
    it.shell_ok(
        "rm root/etc/forebay/state/x.abandoned && dpkg-deb -e $PACKAGES/forebay_*.deb control",
    );
    it.shell_ok("DPKG_ROOT=$PWD/root control/postrm purge");
    assert!(!it.has("etc/forebay"));
    assert!(!it.has("etc/systemd/system/sysinit.target.wants/forebay.target"));
}

#[test]
fn an_rpm_is_installed_and_refused_its_removal() {
    if !has("rpmbuild") || !is_root() {
        return tell("not run: installed by rpm, which needs rpm and root");
    }
    let it = Configured::new();
    // Scripts would be run in the new root, which has no shell: they are run by hand below.
    let rpm = "rpm --root=$PWD/root --dbpath=/var/lib/rpm --noscripts";
    it.shell_ok(&format!(
        "{rpm} --nodeps --nosignature -i $PACKAGES/forebay-*.rpm"
    ));
    for path in [
        "usr/lib/systemd/system/forebay@.service",
        "usr/lib/udev/rules.d/61-forebay-devices.rules",
        "usr/share/licenses/forebay/LICENSE-APACHE",
        "usr/share/man/man5/forebay.toml.5.gz",
        "usr/share/zsh/site-functions/_forebay",
    ] {
        assert!(it.has(path), "{path}");
    }
    assert!(!it.has("usr/share/initramfs-tools"));
    it.shell_ok(&format!("{rpm} -V --nodeps forebay"));
    for (script, tag) in [("post", "POSTIN"), ("preun", "PREUN"), ("postun", "POSTUN")] {
        it.shell_ok(&format!(
            "rpm -qp --nosignature --qf '%{{{tag}}}' $PACKAGES/forebay-*.rpm > {script}"
        ));
    }
    let run = "DPKG_ROOT=$PWD/root sh";
    it.shell_ok(&format!("{run} post 1 && {run} post 2"));
    // One instance is left after an upgrade, none after a removal.
    it.shell_ok(&format!("{run} preun 1"));
    let refused = it.shell(&format!("{run} preun 0"));
    let said = text(&refused);
    assert!(!refused.status.success(), "removed while dirty: {said}");
    assert!(said.contains("holds 4 KiB of volume origin"), "{said}");
    it.drain();
    it.shell_ok(&format!("{run} preun 0"));
    it.shell_ok(&format!("{rpm} --nodeps -e forebay && {run} postun 0"));
    assert!(!it.has("usr/bin/forebay") && it.has("etc/forebay/f.toml"));
}

/// A36: what is left has its reason here.
#[test]
fn lintian_has_nothing_to_say_that_is_not_answered() {
    if !has("lintian") {
        return tell("not run: lintian, which is not installed");
    }
    let answered = [
        // No project address exists: DEBEMAIL is that of whoever builds.
        "bogus-mail-host",
        "root-in-contact",
        // No request of Debian's for a package exists.
        "initial-upload-closes-no-bugs",
        // The binary is static on purpose (docs/operations.md).
        "statically-linked-binary",
        // It can be loaded anywhere, and is taken for a library.
        "shared-library-lacks-prerequisites",
        "embedded-library",
        // Dynamic in this test, without a list of libraries.
        "missing-dependency-on-libc",
        "undeclared-elf-prerequisites",
        // Caches are served with forebay.target, early at boot (packaging/systemd).
        "systemd-service-file-refers-to-unusual-wantedby-target",
        // Scripts have their reasons beside these commands.
        "maintainer-script-calls-systemctl",
    ];
    let output = shell(
        &tree(),
        "lintian --allow-root --tag-display-limit 0 $PACKAGES/forebay_*.deb",
    );
    let said = text(&output);
    let wrong: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("E: ") || line.starts_with("W: "))
        .filter(|line| !answered.iter().any(|tag| line.contains(tag)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_recipe_of_the_container_finds_its_files_in_the_tarball() {
    let scratch = Scratch::new();
    let directory = unpacked(&scratch);
    let recipe = std::fs::read_to_string(directory.join("container/Containerfile")).unwrap();
    let mut copied = BTreeSet::new();
    for line in recipe.lines().filter(|line| line.starts_with("COPY ")) {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let (to, from) = words.split_last().unwrap();
        for path in from {
            assert!(directory.join(path).is_file(), "{line}: no {path}");
        }
        copied.insert((*to).to_owned());
    }
    let entry = recipe
        .lines()
        .find_map(|line| line.strip_prefix("ENTRYPOINT "));
    let entry: Vec<String> = serde_json::from_str(entry.unwrap()).unwrap();
    assert!(copied.contains(&entry[0]), "{entry:?}");
    assert!(recipe.contains("\nFROM scratch\n"), "{recipe}");
}
