//! The dashboard, metrics and their data over HTTP: only to look at, from threads of its own. The
//! daemon that holds the address shows the caches of all that share it.
//!
//! Each connection carries one GET or HEAD. A page elsewhere cannot read any of it: no other
//! origin is allowed, and a request must name an address or `localhost` as its host, which a name
//! that was made to point here ("rebinding") is not.

pub(in crate::daemon) mod address;
mod caches;
mod pages;
mod request;
pub(in crate::daemon) mod token;
mod volumes;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::daemon::seldom;
use crate::daemon::state::Daemon;
use crate::daemon::visitors::{PAUSE, Visit, Visitors};
use crate::failure;
use crate::lock::lock;
use crate::network::http::HttpPlan;
use crate::quoting::in_uri;
use crate::thread;
use address::Wish;
use caches::{Cache, Met, StatusQuery};
use request::{Fault, Request};
use token::Token;

/// The most connections at a time.
const CONNECTIONS: usize = 64;
/// The status of a request without the token.
const UNAUTHORIZED: &str = "401 Unauthorized";
/// The longest time a client may take to receive its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An answer.
struct Response {
    status: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

/// Answers requests.
struct Server {
    daemon: Arc<Daemon>,
    met: Met,
    bound: SocketAddr,
    /// A secret of readers, if they need one.
    token: Option<Token>,
}

/// Serves from a thread of its own, as soon as the address is this daemon's.
pub(in crate::daemon) fn start(daemon: &Arc<Daemon>) -> Result<()> {
    let (plan, token) = {
        let plan = lock(&daemon.plan);
        (plan.http.clone(), plan.http_token.clone())
    };
    if plan == HttpPlan::Off {
        return Ok(());
    }
    let token = token.as_deref().map(Token::read).transpose()?;
    let daemon = Arc::clone(daemon);
    let wish = Wish::new(plan, &daemon.control_path, &daemon.dashboard);
    let held = wish.at_once(&daemon.dashboard);
    thread::start("forebay-http", move || {
        let held = held.unwrap_or_else(|wish| wish.at_last(&daemon.dashboard));
        let server = Server {
            daemon,
            met: Met::default(),
            bound: held.bound,
            token,
        };
        Arc::new(server).serve(&held.listener);
    })?;
    Ok(())
}

impl Server {
    fn serve(self: &Arc<Server>, listener: &TcpListener) {
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
            let server = Arc::clone(self);
            let started = thread::start("forebay-page", move || server.converse(&visit, &stream));
            if let Err(error) = started {
                let error = failure::describe(&error);
                seldom::PAGES.warn(format_args!(
                    "a request for the dashboard was turned away: {error}"
                ));
            }
        }
    }

    fn converse(&self, visit: &Visit<TcpStream>, stream: &TcpStream) {
        let (response, with_body) = match request::read(stream) {
            Err(Fault::Gone) => return,
            Err(Fault::Wrong(status)) => (text(status, status), true),
            Ok(request) if !request.host_is_ours(self.bound) => {
                let why = "this name is not allowed as a host: use the address, or localhost";
                (text("403 Forbidden", why), true)
            }
            Ok(request) if !self.knows(&request) => {
                let why = "this dashboard has a token (--http-token): send it as a bearer, or as the password";
                (text(UNAUTHORIZED, why), true)
            }
            Ok(request) => {
                let made = visit
                    .work(|| self.answer(&request))
                    .unwrap_or_else(|error| {
                        let why = failure::describe(&error);
                        text("503 Service Unavailable", &why)
                    });
                (made, request.with_body)
            }
        };
        send(stream, &response, with_body);
    }

    /// Whether a reader has the token, if there is one.
    fn knows(&self, request: &Request) -> bool {
        let mut token = self.token.iter();
        token.all(|token| token.is_in(&request.authorization))
    }

    fn answer(&self, request: &Request) -> Result<Response> {
        let path = request.path.as_str();
        if let Some(rest) = path.strip_prefix("/cache/") {
            return self.of_named_cache(rest, request);
        }
        match path {
            "/metrics" => metrics(self.met.all(&self.daemon)),
            "/api/caches" => {
                let caches = self.met.all(&self.daemon);
                json(&caches.into_iter().map(Cache::line).collect::<Vec<_>>())
            }
            "/" | "/api/status" | "/api/history" | "/api/events" | "/api/volumes"
            | "/api/settings" => {
                if self.met.only(&self.daemon) {
                    return self.of_cache(None, path, request);
                }
                Ok(match path {
                    "/" => page(pages::overview()),
                    _ => text(
                        "404 Not Found",
                        "several caches run: ask for /cache/NAME/api/..., with a name of /api/caches; reload the page",
                    ),
                })
            }
            path => Ok(file(path)),
        }
    }

    /// A page of the cache that the path begins with.
    fn of_named_cache(&self, rest: &str, request: &Request) -> Result<Response> {
        let Some((name, _)) = rest.split_once('/') else {
            let why = "the page of a cache is /cache/NAME/, with a slash at its end";
            return Ok(text("404 Not Found", why));
        };
        let path = &rest[name.len()..];
        if !path.starts_with("/api/") && path != "/metrics" {
            // Files are alike for all.
            return Ok(file(path));
        }
        if path != "/metrics"
            && let Some(socket) = self.met.known(&self.daemon, name)
        {
            return self.of_cache(socket.as_deref(), path, request);
        }
        let is_it = |cache: &Cache| in_uri(&cache.name) == name || cache.name == name;
        let found = self.met.all(&self.daemon).into_iter().find(is_it);
        let Some(cache) = found else {
            let why = "no cache of this name runs here; /api/caches names those that do";
            return Ok(text("404 Not Found", why));
        };
        if path == "/metrics" {
            return metrics(vec![cache]);
        }
        self.of_cache(cache.socket.as_deref(), path, request)
    }

    /// A page of this daemon's cache, or of that of the daemon at the socket.
    fn of_cache(&self, socket: Option<&Path>, path: &str, request: &Request) -> Result<Response> {
        let question = match path {
            "/api/status" => StatusQuery::Status,
            "/api/history" => match request.number("since") {
                Ok(since) => StatusQuery::History { since },
                Err(why) => return Ok(text("400 Bad Request", &why)),
            },
            "/api/events" => match request.number("after") {
                Ok(after) => StatusQuery::Events {
                    after: after as u64,
                },
                Err(why) => return Ok(text("400 Bad Request", &why)),
            },
            "/api/volumes" => StatusQuery::Volumes,
            "/api/settings" => StatusQuery::Settings,
            path => return Ok(file(path)),
        };
        match socket {
            Some(socket) => json(&caches::ask(socket, question)?),
            None => self.of_itself(question),
        }
    }

    fn of_itself(&self, question: StatusQuery) -> Result<Response> {
        let daemon = &self.daemon;
        match question {
            StatusQuery::Status => json(&daemon.status()?),
            StatusQuery::History { since } => json(&daemon.history.after(since)),
            StatusQuery::Events { after } => json(&daemon.events.after(after)),
            StatusQuery::Volumes => json(&daemon.volume_views()?),
            StatusQuery::Settings => json(&daemon.get(None)?["settings"]),
        }
    }
}

fn metrics(caches: Vec<Cache>) -> Result<Response> {
    let named: Vec<_> = caches.into_iter().map(Cache::named).collect();
    let page = crate::report::metrics::page(&named);
    Ok(ok(crate::report::metrics::CONTENT_TYPE, page.into_bytes()))
}

fn file(path: &str) -> Response {
    pages::find(path).map_or_else(|| text("404 Not Found", "there is no such page"), page)
}

fn page(page: &pages::Page) -> Response {
    ok(page.content_type, page.body.as_bytes().to_vec())
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
    let asks = if response.status == UNAUTHORIZED {
        "WWW-Authenticate: Basic realm=\"forebay\"\r\n"
    } else {
        ""
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{asks}\
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
        .set_write_timeout(Some(TIMEOUT))
        .and_then(|()| stream.write_all(head.as_bytes()))
        .and_then(|()| stream.write_all(body));
    let _ = stream.shutdown(std::net::Shutdown::Write);
}
