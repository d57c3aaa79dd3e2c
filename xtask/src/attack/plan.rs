//! What an attack needs before it can begin: which engines stand behind the router, which tenants there
//! are, and what its file says beyond the defaults. The router's file is written from it.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::fake::{Script, script};

/// A tenant: its name, its key and the key's SHA-256, as the router's file has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    key_sha256: &'static str,
}

/// The attacker.
pub(super) const MALLORY: Tenant = Tenant {
    name: "mallory",
    key: "mallory-key",
    key_sha256: "a2c6db64998e297b1413b0033e66c5ac0e0a810cac887f9c6b4636f6df389ad9",
};
/// Its accomplice, where more than one tenant lies.
pub(super) const EVE: Tenant = Tenant {
    name: "eve",
    key: "eve-key",
    key_sha256: "063f9aac4168c3cc72bc2f81d8e55314ef8052df55829d2e13be2d1f3302a2df",
};
/// The bystanders.
pub(super) const ALICE: Tenant = Tenant {
    name: "alice",
    key: "alice-key",
    key_sha256: "72ee9d4355ccb9d3a4c9dbf37382e38e75c1b1a225b5bd1f729ee91bbda30c20",
};
pub(super) const BOB: Tenant = Tenant {
    name: "bob",
    key: "bob-key",
    key_sha256: "9b94dc1a51a38769f135edf04033ad7f2f487b6c25929be7a861cfc1ab10cf98",
};

/// An engine behind the router.
pub(super) enum Engine {
    /// `cleave mock-replica`, a process, with further arguments.
    Mock(&'static [&'static str]),
    /// A thread of this program that says what its script says.
    Fake(Script),
}

pub(super) struct Plan {
    pub(super) engines: Vec<Engine>,
    /// Without tenants all clients are one workload and send no key.
    pub(super) has_tenants: bool,
    /// Lines of dotted keys at the top of the router's file.
    pub(super) settings: String,
    /// Further lines of the pool.
    pub(super) pool: &'static str,
    /// Further lines of the attackers' tenants.
    pub(super) attackers: &'static str,
    /// Whether the engines are honestly full during the attack: then bystanders may wait, but not fail.
    pub(super) is_full: bool,
    /// What the attack makes the router hold, within its configured limits. Allocators give such memory
    /// back late or never, so it is no leak if it stays resident.
    pub(super) held_mib: u64,
    /// The most files the router's process may have open.
    pub(super) files_max: Option<u32>,
    /// Whether the router's standard error is a pipe that nothing reads.
    pub(super) log_unread: bool,
}

impl Plan {
    fn new(engines: Vec<Engine>) -> Self {
        Self {
            engines,
            has_tenants: true,
            settings: String::new(),
            pool: "",
            attackers: "",
            is_full: false,
            held_mib: 0,
            files_max: None,
            log_unread: false,
        }
    }

    /// Puts `count` mock replicas behind the router.
    pub(super) fn mocks(count: usize) -> Self {
        Self::new((0..count).map(|_| Engine::Mock(&[])).collect())
    }

    /// Puts `count` engines behind the router that all follow one script.
    pub(super) fn fakes(
        count: usize,
        says: impl Fn(&super::fake::Asked, &mut super::fake::Mouth) -> std::io::Result<()>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let says = script(says);
        Self::new((0..count).map(|_| Engine::Fake(says.clone())).collect())
    }

    pub(super) fn with(mut self, engine: Engine) -> Self {
        self.engines.push(engine);
        self
    }

    pub(super) fn without_tenants(mut self) -> Self {
        self.has_tenants = false;
        self
    }

    pub(super) const fn holds(mut self, mib: u64) -> Self {
        self.held_mib = mib;
        self
    }

    pub(super) fn settings(mut self, lines: &str) -> Self {
        self.settings.push_str(lines);
        self
    }

    pub(super) const fn pool(mut self, lines: &'static str) -> Self {
        self.pool = lines;
        self
    }

    pub(super) const fn attackers(mut self, lines: &'static str) -> Self {
        self.attackers = lines;
        self
    }

    /// Writes the router's file.
    pub(super) fn config(
        &self,
        listen: SocketAddr,
        admin: SocketAddr,
        state: &str,
        replicas: &[SocketAddr],
    ) -> String {
        let mut text = format!(
            "listen = \"{listen}\"\nadmin.listen = \"{admin}\"\nsubsets.state_dir = \"{state}\"\n{}",
            self.settings
        );
        if self.has_tenants {
            for (tenant, lines) in
                [(MALLORY, self.attackers), (EVE, self.attackers), (ALICE, ""), (BOB, "")]
            {
                let Tenant { name, key_sha256, .. } = tenant;
                let own = format!("name = \"{name}\"\nkey_sha256 = [\"{key_sha256}\"]\n{lines}");
                text.extend(["\n[[tenants]]\n", &own, "\n"]);
            }
        }
        text.push_str("\n[[pools]]\nname = \"main\"\nmodels = [\"m\"]\n");
        text.push_str(self.pool);
        text.push_str("\nreplicas = [");
        for replica in replicas {
            // Writing to a string does not fail.
            _ = write!(text, "\"http://{replica}\", ");
        }
        text + "]\n"
    }
}
