//! Settings that arguments and a file say alike. Arguments win.

use std::path::Path;

use anyhow::{Context, Result};
use forebay_engine::Settings;
use forebay_frontend::nbd::TlsServer;
use forebay_io::DirectIo;

use super::faults;
use super::file::{File, FileNbd};
use super::of_args::direct;
use super::plan::{DEFAULT_MEMORY_BYTES, Plan};
use super::profile::Chosen;
use crate::args::ServeArgs;
use crate::failure::{Refused, Usage};
use crate::network::access::SocketAccess;
use crate::network::http::HttpPlan;
use crate::network::nbd::{Address, Tls, TlsFiles};

/// The plan but for its devices and [`network`].
pub(super) fn plan(
    file: &File,
    args: &ServeArgs,
    chosen: &Chosen,
    settings: Settings,
) -> Result<Plan> {
    Ok(Plan {
        cache: None,
        volumes: Vec::new(),
        nbd: addresses(&file.nbd, args)?,
        ublk: args.ublk || file.ublk.enabled,
        tls: Tls::default(),
        http: HttpPlan::Off,
        http_token: (args.http_token.clone()).or_else(|| file.http.token.clone()),
        settings,
        profile: chosen.profile,
        notes: chosen.notes.clone(),
        memory_bytes: args
            .memory
            .or(file.daemon.memory.as_ref().map(|size| size.0.0))
            .unwrap_or(DEFAULT_MEMORY_BYTES),
        threads: args.threads.or(file.daemon.threads),
        hook: args.hook.clone().or(file.daemon.hook.clone()),
        direct: if file.daemon.direct_required {
            DirectIo::Required
        } else {
            direct(args.devices.direct)
        },
        state_dir: args
            .devices
            .state_dir
            .clone()
            .or(file.daemon.state_dir.clone()),
        socket: SocketAccess {
            owner: (args.sockets.socket_owner).or(file
                .nbd
                .socket_owner
                .as_ref()
                .map(|owner| owner.0)),
            group: (args.sockets.socket_group).or(file
                .nbd
                .socket_group
                .as_ref()
                .map(|group| group.0)),
            mode: (args.sockets.socket_mode).or(file.nbd.socket_mode.as_ref().map(|mode| mode.0)),
        },
        control_group: (args.sockets.control_group).or(file
            .daemon
            .control_group
            .as_ref()
            .map(|group| group.0)),
        control: args.control.clone().or(file
            .daemon
            .control
            .as_ref()
            .map(|control| control.get_ref().clone())),
        record: args.record.clone().or(file.daemon.record.clone()),
        initramfs: file.daemon.initramfs_span().is_some(),
        source: None,
    })
}

/// Addresses to export at: those of the arguments, or else of the file.
fn addresses(nbd: &FileNbd, args: &ServeArgs) -> Result<Vec<Address>> {
    if args.nbd.is_empty() {
        let listed = nbd.listen.iter();
        return Ok(listed.map(|text| text.get_ref().0.clone()).collect());
    }
    args.nbd.iter().map(|text| Ok(text.parse()?)).collect()
}

/// TLS and the dashboard.
pub(super) fn network(text: &str, file: &File, args: &ServeArgs) -> Result<(Tls, HttpPlan)> {
    let nbd = &file.nbd;
    let (cert, key, authority) = match &args.tls_cert {
        Some(_) => (&args.tls_cert, &args.tls_key, &args.tls_ca),
        None => (&nbd.tls_cert, &nbd.tls_key, &nbd.tls_ca),
    };
    let tls = tls(
        cert.as_deref(),
        key.as_deref(),
        authority.as_deref(),
        args.nbd_insecure || nbd.insecure,
    )?;
    let insecure = args.http_insecure || file.http.insecure;
    let http = match (&args.http, &file.http.listen) {
        (Some(given), _) => given.clone().permitted(insecure)?,
        (None, None) => HttpPlan::default(),
        (None, Some(listen)) => {
            let line = faults::line_number(text, listen.span().start);
            let wanted = listen.get_ref().0.clone();
            wanted
                .permitted(insecure)
                .map_err(|error| Refused(format!("line {line}: {}", error.0)))?
        }
    };
    Ok((tls, http))
}

fn tls(
    cert: Option<&Path>,
    key: Option<&Path>,
    authority_file: Option<&Path>,
    insecure: bool,
) -> Result<Tls> {
    let read = |path: &Path| {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let server = match (cert, key) {
        (Some(cert), Some(key)) => {
            let authority = authority_file.map(read).transpose()?;
            Some(TlsServer::from_pem(
                &read(cert)?,
                &read(key)?,
                authority.as_deref(),
            )?)
        }
        (None, None) => None,
        _ => {
            return Err(Usage(
                "TLS needs both a certificate and its key: --tls-cert and --tls-key".to_owned(),
            )
            .into());
        }
    };
    let files = TlsFiles {
        cert: cert.map(Path::to_owned),
        key: key.map(Path::to_owned),
        authority: authority_file.map(Path::to_owned),
    };
    Ok(Tls {
        server,
        insecure,
        files,
    })
}
