//! Which parts of a changed configuration cannot be applied to a running daemon.

use super::plan::Plan;

impl Plan {
    /// The sections and keys in which a new plan differs from this one and that a daemon reads only
    /// when it starts. Certificates are not compared.
    pub(crate) fn needs_restart_for(&self, new: &Plan) -> Vec<&'static str> {
        let differences = [
            ("[cache]", self.cache != new.cache),
            ("[nbd] listen", self.nbd != new.nbd),
            (
                "[nbd] tls",
                self.tls.server.is_some() != new.tls.server.is_some(),
            ),
            ("[nbd] insecure", self.tls.insecure != new.tls.insecure),
            ("[nbd] socket", self.socket != new.socket),
            (
                "[daemon] control-group",
                self.control_group != new.control_group,
            ),
            (
                "[http]",
                self.http != new.http || self.http_token != new.http_token,
            ),
            ("[ublk]", self.ublk != new.ublk),
            ("[daemon] memory", self.memory_bytes != new.memory_bytes),
            ("[daemon] threads", self.threads != new.threads),
            ("[daemon] direct-required", self.direct != new.direct),
            ("[daemon] state-dir", self.state_dir != new.state_dir),
            ("[daemon] initramfs", self.initramfs != new.initramfs),
            ("[daemon] control", self.control != new.control),
            ("[daemon] record", self.record != new.record),
        ];
        let differing = differences.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(name, _)| name).collect()
    }
}
