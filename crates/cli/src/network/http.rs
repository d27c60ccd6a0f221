//! Where the dashboard is served.

use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::str::FromStr;

use crate::failure::Refused;

/// Where the dashboard and metrics are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HttpPlan {
    /// At the usual address, as soon as that is free.
    #[default]
    Usual,
    /// There, or the daemon does not start.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

impl HttpPlan {
    /// The usual addresses: the first that is free.
    pub(crate) fn usual() -> [SocketAddr; 10] {
        std::array::from_fn(|place| SocketAddr::from(([127, 0, 0, 1], 9837 + place as u16)))
    }

    /// Refuses an address that others can reach, unless that is wanted: a reader there sees names
    /// of volumes and devices, without a password or encryption.
    pub(crate) fn permitted(self, insecure: bool) -> Result<HttpPlan, Refused> {
        match self {
            HttpPlan::At(address) if !address.ip().is_loopback() && !insecure => {
                Err(Refused(format!(
                    "others can reach the dashboard on {address}, without password or encryption; \
                     listen on 127.0.0.1 behind a proxy, or allow it with --http-insecure \
                     ([http] insecure = true in a file)"
                )))
            }
            plan => Ok(plan),
        }
    }
}

impl Display for HttpPlan {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            HttpPlan::Usual => {
                let [first, .., last] = HttpPlan::usual();
                write!(out, "{first} to {last}")
            }
            HttpPlan::At(address) => address.fmt(out),
            HttpPlan::Off => out.write_str("off"),
        }
    }
}

impl FromStr for HttpPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpPlan, String> {
        if text == "off" {
            return Ok(HttpPlan::Off);
        }
        let address = text.replacen("localhost:", "127.0.0.1:", 1);
        address.parse().map(HttpPlan::At).map_err(|_| {
            format!("`{text}` is no address for HTTP: write ADDRESS:PORT, such as 127.0.0.1:9837 or [::1]:9837, or off")
        })
    }
}
