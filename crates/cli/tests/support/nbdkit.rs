//! Servers of the NBD protocol that other people made, for a test's network origin.

use std::process::{Child, Command, Stdio};

use super::{Scratch, until};

/// A server that ends with its test.
pub(crate) struct Server(Child);

impl Server {
    /// Starts nbdkit on the unix socket `server`.
    pub(crate) fn nbdkit(scratch: &Scratch, arguments: &[&str]) -> Server {
        let socket = scratch.path("server");
        // What a killed server leaves behind.
        let _ = std::fs::remove_file(&socket);
        let child = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(&socket)
            .args(arguments)
            .current_dir(scratch.path("."))
            .stderr(Stdio::null())
            .spawn()
            .expect("nbdkit");
        until("the server to listen", || socket.exists());
        Server(child)
    }

    pub(crate) fn of(child: Child) -> Server {
        Server(child)
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("a server that runs");
        self.0.wait().expect("its end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
