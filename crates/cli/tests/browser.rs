//! The dashboard in a real browser. Chromium is 400 MB: `make test-browser` installs and uses it,
//! and where it is not installed this is skipped.

mod support;

use support::browser::Browser;
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, http, installed, until};

#[test]
fn the_page_shows_what_is_so_and_outlives_the_daemon() {
    if !installed("chromium") {
        return;
    }
    let scratch = Scratch::new();
    scratch.pattern("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    let options = ["--http", "127.0.0.1:0", "--age", "3600"];
    let daemon = Daemon::cached(&scratch, "writeback", &options);
    let address = http::address(&daemon, &scratch);
    let url = format!("http://{address}/");
    let mut browser = Browser::open(&scratch, &url, (390, 844));
    browser.until("the page", "!!document.querySelector('#tile-dirty')");

    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(MIB, &[3; 65536]);
    client.read(8 * MIB, 65536);
    // The answer does not wait for it.
    until("the promotion", || {
        daemon.status(&scratch)["traffic"]["promoted_blocks"] == 16
    });
    for _ in 0..3 {
        client.read(8 * MIB, 65536);
    }
    let tile = |name: &str, words: &str| {
        format!("document.querySelector('#tile-{name} b').textContent === '{words}'")
    };
    // The page's own figures are those that clients made.
    browser.until("dirty data", &tile("dirty", "64.0 KiB"));
    browser.until("hits: three of four", &tile("hit", "75.0 %"));
    browser.until(
        "no complaint",
        "document.querySelectorAll('#trouble li').length === 0 && !$('well').hidden && $('well').textContent === 'no trouble'",
    );
    browser.until(
        "the volume in the list",
        "[...document.querySelectorAll('#volume-rows tr[data-name=origin] td')].map((cell) => cell.textContent).slice(0, 6).join('|').match(/^origin[|]writeback[|].*origin[|]32.0 MiB[|].*[|]64.0 KiB$/) !== null",
    );
    browser.until(
        "the settings",
        "!$('settings').hidden && $('setting-rows').textContent.includes('dirty-limit')",
    );
    // The first is the time; legends at rest have the last value.
    browser.until(
        "legends without dashes",
        "/[0-9]/.test(document.querySelector('#charts .u-legend .u-value').textContent)",
    );
    browser.until(
        "read data drawn",
        "CHARTS[0].plot.data[1].some((rate) => rate > 100000)",
    );
    browser.until("charts, wide enough", "[...document.querySelectorAll('#charts canvas')].length === 8 && [...document.querySelectorAll('#charts canvas')].every((c) => c.width > 200)");
    browser.until(
        "heat and curve",
        "document.querySelectorAll('#volumes canvas').length === 2",
    );
    // Nothing is wider than a telephone.
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64().unwrap() <= 390, "{wide}");

    browser.until(
        "the beginning",
        "$('events').textContent.includes('serves')",
    );
    daemon.command(&scratch, &["mode", "origin", "readonly"]);
    browser.until(
        "the event",
        "$('events').textContent.includes('mode readonly')",
    );
    let background = "getComputedStyle(document.body).backgroundColor";
    let before = browser.value(background);
    browser.value("$('theme').click()");
    assert_ne!(browser.value(background), before, "dark and light");

    drop(client);
    daemon.stop();
    browser.until("the daemon missed", "!$('gone').hidden");
    let again = ["--origin", "origin", "--cache", "cache", "--http", &address];
    let daemon = Daemon::start(&scratch, &again);
    browser.until("the next daemon", "$('gone').hidden");
    browser.until(
        "its own events alone",
        "!$('events').textContent.includes('readonly') && $('events').children.length > 0",
    );
    browser.until("its own history", "state.times.length > 1");
    let elsewhere: Vec<_> = browser
        .requested
        .iter()
        .filter(|asked| {
            !asked.starts_with(&url) && !asked.starts_with("data:") && *asked != "about:blank"
        })
        .collect();
    assert!(
        browser.requested.len() > 5 && elsewhere.is_empty(),
        "{elsewhere:?}"
    );
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
    daemon.stop();
}
