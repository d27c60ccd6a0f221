//! Certificates of an authority that a test makes.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::Scratch;

/// An authority in `ca.pem`, a certificate of it for the daemon, and directories as libnbd wants
/// them: `client` has a certificate too, `stranger` has none.
pub(crate) fn certificates(scratch: &Scratch, names: &[String]) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let issue = |names: &[String], certificate: &str, key: &str| {
        let pair = KeyPair::generate().unwrap();
        let issued = CertificateParams::new(names)
            .unwrap()
            .signed_by(&pair, &authority)
            .unwrap();
        std::fs::write(scratch.path(certificate), issued.pem()).unwrap();
        std::fs::write(scratch.path(key), pair.serialize_pem()).unwrap();
    };
    for directory in ["client", "stranger"] {
        std::fs::create_dir(scratch.path(directory)).unwrap();
        let file = scratch.path(directory).join("ca-cert.pem");
        std::fs::write(file, authority.pem()).unwrap();
    }
    std::fs::write(scratch.path("ca.pem"), authority.pem()).unwrap();
    issue(names, "server.pem", "server.key");
    let client = ["client".to_owned()];
    issue(&client, "client/client-cert.pem", "client/client-key.pem");
}
