//! The plan that arguments make.

use std::path::Path;

use crate::settings::OwnSettings;
use anyhow::{Context, Result};
use forebay_frontend::nbd::TlsServer;
use forebay_io::DirectIo;
use forebay_model::ModelOptions;

use super::plan::{CachePlan, DEFAULT_MEMORY_BYTES, Plan, VolumePlan};
use super::profile;
use crate::args::{Direct, ServeArgs};
use crate::failure::Usage;
use crate::network::access::SocketAccess;
use crate::network::nbd::{Tls, TlsFiles};

/// The plan for arguments without a file.
pub(super) fn plan(args: ServeArgs) -> Result<Plan> {
    let emulate = |text: Option<&String>| text.map(|text| model(text)).transpose();
    let Some(origin) = args.origin else {
        return Err(Usage("no origin device is given: name it with --origin".to_owned()).into());
    };
    let chosen = profile::of_args(&args.profile).map_err(|fault| Usage(fault.message))?;
    if chosen.profile.is_some() && args.cache.is_empty() {
        return Err(Usage("a profile needs a cache: --cache SSD".to_owned()).into());
    }
    let volume = VolumePlan {
        origin,
        name: args.name,
        mode: args.mode.or(chosen.mode),
        own: OwnSettings::default(),
        format: args.origin_format,
        emulate: emulate(args.origin_emulate.as_ref())?,
    };
    let cache_emulation = emulate(args.cache_emulate.as_ref())?;
    let cache = (!args.cache.is_empty()).then(|| CachePlan {
        devices: args.cache.clone(),
        create: args.create,
        emulate: cache_emulation,
    });
    Ok(Plan {
        cache,
        volumes: vec![volume],
        nbd: args
            .nbd
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, Usage>>()?,
        socket: SocketAccess {
            owner: args.sockets.socket_owner,
            group: args.sockets.socket_group,
            mode: args.sockets.socket_mode,
        },
        control_group: args.sockets.control_group,
        ublk: args.ublk,
        tls: tls(
            args.tls_cert.as_deref(),
            args.tls_key.as_deref(),
            args.tls_ca.as_deref(),
            args.nbd_insecure,
        )?,
        settings: args.settings.over(chosen.settings),
        profile: chosen.profile,
        notes: chosen.notes,
        http: args
            .http
            .unwrap_or_default()
            .permitted(args.http_insecure)?,
        http_token: args.http_token,
        memory_bytes: args.memory.unwrap_or(DEFAULT_MEMORY_BYTES),
        threads: args.threads,
        hook: args.hook,
        direct: direct(args.devices.direct),
        state_dir: args.devices.state_dir,
        control: args.control,
        record: args.record,
        initramfs: false,
        source: None,
    })
}

pub(crate) fn direct(wanted: Direct) -> DirectIo {
    match wanted {
        Direct::Required => DirectIo::Required,
        Direct::IfPossible => DirectIo::IfPossible,
    }
}

pub(crate) fn model(text: &str) -> Result<ModelOptions> {
    ModelOptions::parse(text).map_err(|error| Usage(error.to_string()).into())
}

pub(super) fn tls(
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
