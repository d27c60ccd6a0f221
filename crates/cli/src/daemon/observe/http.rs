//! The dashboard, metrics and their data over HTTP: only to look at, from threads of its own.
//!
//! Each connection carries one GET or HEAD. A page elsewhere cannot read any of it: no other
//! origin is allowed, and a request must name an address or `localhost` as its host, which a name
//! that was made to point here ("rebinding") is not.

mod pages;
mod request;
mod volumes;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::daemon::seldom;
use crate::daemon::state::Daemon;
use crate::daemon::visitors::{PAUSE, Visit, Visitors};
use crate::failure;
use crate::network::http::HttpPlan;
use crate::thread;
use request::{Fault, Request};

/// The most connections at a time.
const CONNECTIONS: usize = 64;
/// The longest time a client may take to receive its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer.
struct Response {
    status: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

/// Listens, if the plan says so. Other daemons may have taken all the usual addresses: this daemon
/// is then without a dashboard. An address that was asked for must be free.
pub(in crate::daemon) fn bind(plan: &HttpPlan) -> Result<Option<TcpListener>> {
    match plan {
        HttpPlan::Off => Ok(None),
        HttpPlan::Usual => match TcpListener::bind(&HttpPlan::usual()[..]) {
            Ok(listener) => Ok(Some(listener)),
            Err(error) => {
                let [first, .., last] = HttpPlan::usual();
                tracing::warn!(
                    "no dashboard: cannot listen on {first} to {last} ({}); choose another with --http ADDRESS:PORT",
                    failure::in_words(&error)
                );
                Ok(None)
            }
        },
        HttpPlan::At(address) => {
            let listener = TcpListener::bind(address).with_context(|| {
                format!("cannot listen on {address} for --http; is the port taken (ss -ltn)?")
            })?;
            Ok(Some(listener))
        }
    }
}

/// Serves from a thread of its own.
pub(in crate::daemon) fn start(daemon: &Arc<Daemon>, listener: TcpListener) -> Result<()> {
    let bound = listener
        .local_addr()
        .context("cannot find out where the dashboard listens")?;
    let url = format!("http://{bound}/");
    tracing::info!("dashboard and metrics on {url}");
    // Set once, here.
    let _ = daemon.dashboard.set(url);
    let daemon = Arc::clone(daemon);
    thread::start("forebay-http", move || serve(&daemon, &listener, bound))?;
    Ok(())
}

fn serve(daemon: &Arc<Daemon>, listener: &TcpListener, bound: SocketAddr) {
    let visitors = Visitors::new(CONNECTIONS);
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => Arc::new(stream),
            Err(error) => {
                seldom::PAGES.warn(format_args!(
                    "a request for the dashboard could not be accepted: {}",
                    failure::in_words(&error)
                ));
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let Some((visit, took)) = visitors.let_in(&stream) else {
            send(&stream, &busy(), true);
            continue;
        };
        if took {
            seldom::PAGES.warn(format_args!(
                "a connection to the dashboard that had not sent its request, or did not read its answer, was closed \
                 to let another in: {CONNECTIONS} at a time"
            ));
        }
        let daemon = Arc::clone(daemon);
        let started = thread::start("forebay-page", move || {
            converse(&daemon, &visit, &stream, bound)
        });
        if let Err(error) = started {
            let error = failure::describe(&error);
            seldom::PAGES.warn(format_args!(
                "a request for the dashboard was turned away: {error}"
            ));
        }
    }
}

fn converse(daemon: &Daemon, visit: &Visit<TcpStream>, stream: &TcpStream, bound: SocketAddr) {
    let (response, with_body) = match request::read(stream) {
        Err(Fault::Gone) => return,
        Err(Fault::Wrong(status)) => (text(status, status), true),
        Ok(request) if !request.host_is_ours(bound) => {
            let why = "this name is not allowed as a host: use the address, or localhost";
            (text("403 Forbidden", why), true)
        }
        Ok(request) => {
            let response = visit.work(|| answer(daemon, &request));
            (response, request.with_body)
        }
    };
    send(stream, &response, with_body);
}

fn answer(daemon: &Daemon, request: &Request) -> Response {
    let made = match request.path.as_str() {
        "/metrics" => daemon.status().map(|status| {
            let page = crate::report::metrics::page(&status);
            ok(crate::report::metrics::CONTENT_TYPE, page.into_bytes())
        }),
        "/api/status" => daemon.status().and_then(|status| json(&status)),
        "/api/history" => match request.number("since") {
            Ok(since) => json(&daemon.history.after(since)),
            Err(why) => Ok(text("400 Bad Request", &why)),
        },
        "/api/events" => match request.number("after") {
            Ok(after) => json(&daemon.events.after(after as u64)),
            Err(why) => Ok(text("400 Bad Request", &why)),
        },
        "/api/volumes" => daemon.volume_views().and_then(|views| json(&views)),
        path => Ok(pages::find(path).map_or_else(
            || text("404 Not Found", "there is no such page"),
            |page| ok(page.content_type, page.body.as_bytes().to_vec()),
        )),
    };
    made.unwrap_or_else(|error| {
        let why = crate::failure::describe(&error);
        text("503 Service Unavailable", &why)
    })
}

fn json(what: &impl serde::Serialize) -> Result<Response> {
    Ok(ok("application/json", serde_json::to_vec(what)?))
}

fn ok(content_type: &'static str, body: Vec<u8>) -> Response {
    Response {
        status: "200 OK",
        content_type,
        body,
    }
}

fn text(status: &'static str, words: &str) -> Response {
    Response {
        status,
        content_type: "text/plain; charset=utf-8",
        body: format!("{words}\n").into_bytes(),
    }
}

fn busy() -> Response {
    text("503 Service Unavailable", "too many connections at a time")
}

fn send(mut stream: &TcpStream, response: &Response, with_body: bool) {
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
         Referrer-Policy: no-referrer\r\nContent-Security-Policy: {}\r\n\r\n",
        response.status,
        response.content_type,
        response.body.len(),
        pages::POLICY,
    );
    let body: &[u8] = if with_body { &response.body } else { &[] };
    // A client that no longer listens misses nothing.
    let _ = stream
        .set_write_timeout(Some(PATIENCE))
        .and_then(|()| stream.write_all(head.as_bytes()))
        .and_then(|()| stream.write_all(body));
    let _ = stream.shutdown(std::net::Shutdown::Write);
}
