//! Two routers, and a pool for each trouble: replicas that are gone, cut streams, fail, are slow or bring themselves down,
//! a tenant beyond its contract, a program that adds no replicas, a certificate that ends tomorrow.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::load::{self, Client, Load};
use super::servers::{Play, SmallServer};
use crate::http1::{self, free_address};
use crate::process::must;
use crate::rig;
use crate::server::Server;

/// The key of the tenant `small`, and its SHA-256.
const KEY: &str = "small";
const KEY_SHA256: &str = "81db8ebbbbc69c6c6ad4a6aa92b76e0c08af547da236b9e2c9dbe1d8285a8130";

pub(super) struct World {
    chat: Vec<SocketAddr>,
    poisoned: Vec<SocketAddr>,
    routers: [SocketAddr; 2],
    admins: [SocketAddr; 2],
    panicking: SmallServer,
    // Clients end before what they ask.
    _load: Load,
    _servers: Vec<Server>,
    _small: [SmallServer; 2],
}

impl World {
    pub(super) fn start(binary: &Path, folder: &Path) -> Result<Self> {
        let mut servers = Vec::new();
        let mut mocks = |model: &str, each: &[&[&str]]| -> Result<Vec<SocketAddr>> {
            each.iter()
                .enumerate()
                .map(|(number, arguments)| {
                    let address = free_address()?;
                    let arguments = [&["--model", model], *arguments].concat();
                    let name = format!("{model}{number}");
                    servers.push(rig::start_mock(binary, folder, &name, address, &arguments)?);
                    Ok(address)
                })
                .collect()
        };
        let chat = mocks("chat", &[&[], &[], &[]])?;
        let poisoned = mocks("poison", &[&[], &[], &[]])?;
        let refusing = SmallServer::start(Play::KeyRefused)?;
        let mute = SmallServer::start(Play::EngineSilent)?;
        let pools = [
            ("chat", chat.clone(), ""),
            ("poison", poisoned.clone(), ""),
            ("cut", mocks("cut", &[&["--truncate-rate", "0.5"]])?, ""),
            ("slow", mocks("slow", &[&["--slow-factor", "400"]])?, ""),
            ("flaky", mocks("flaky", &[&[], &["--fail-rate", "0.6"]])?, ""),
            // The slow one gets its share all the same.
            (
                "lag",
                mocks("lag", &[&[], &[], &["--slow-factor", "4"]])?,
                "policy = \"round_robin\"\n",
            ),
            ("gone", vec![free_address()?], ""),
            ("key", vec![refusing.address], ""),
            ("mute", vec![mute.address], ""),
        ];
        let listed = folder.join("scaled.txt");
        let scaled = mocks("scaled", &[&[]])?;
        fs::write(&listed, format!("http://{}\n", scaled[0]))?;
        let common = pools.iter().map(|it| pool(it.0, &it.1, it.2)).collect::<String>();
        let common = ending_certificate(folder)? + &common;
        // It should have two, and the program that adds them fails.
        let scaled = format!(
            "[[pools]]\nname = \"scaled\"\nmodels = [\"scaled\"]\ndiscover = \"file:{}\"\n[pools.scaling]\n\
             mode = \"command\"\ncommand = [\"/bin/false\"]\nmin = 2\nmax = 4\nstart_up = \"1s\"\n",
            listed.display()
        );
        let routers = [free_address()?, free_address()?];
        let admins = [free_address()?, free_address()?];
        let meeting = free_address()?;
        for number in 0..2 {
            let cluster = match number {
                0 => format!("listen = \"{meeting}\"\n"),
                _ => format!("listen = \"127.0.0.1:0\"\npeers = [\"{meeting}\"]\n"),
            };
            let config = config(routers[number], admins[number], &cluster) + &common + &scaled;
            let file = folder.join(format!("router{number}.toml"));
            fs::write(&file, config)?;
            let mut command = Command::new(binary);
            command.args(["serve", "--config"]).arg(&file);
            servers.push(Server::start(&format!("router{number}"), &mut command, folder)?);
            rig::wait_until_ready(admins[number], folder)?;
        }
        let load = Load::start(routers, &clients());
        let panicking = SmallServer::start(Play::Panicking)?;
        Ok(Self {
            chat,
            poisoned,
            routers,
            admins,
            panicking,
            _load: load,
            _servers: servers,
            _small: [refusing, mute],
        })
    }

    /// Where Prometheus finds figures.
    pub(super) fn targets(&self) -> Vec<SocketAddr> {
        vec![self.admins[0], self.admins[1], self.panicking.address]
    }

    /// Sends a prompt that brings down every replica which reads it.
    pub(super) fn poison(&self) -> Result<()> {
        for address in &self.poisoned {
            let (head, _) = http1::post(*address, "/mock/faults", r#"{"poison":true}"#)?;
            ensure!(head.is_success(), "{address} takes no fault: {}", head.first_line);
        }
        let client = Client { model: "poison", ..client("poison") };
        for router in self.routers {
            // The router answers or refuses; the figures show what it made of it.
            _ = load::ask(router, &client, None, "hello <|crash|>");
        }
        Ok(())
    }

    /// Drains another replica of the first pool than before.
    pub(super) fn drain_one(&self, turn: usize) -> Result<()> {
        for (number, address) in self.chat.iter().enumerate() {
            let order = if number == turn % self.chat.len() { "drain" } else { "undrain" };
            let (head, _) = http1::post(self.admins[0], &format!("/{order}/{address}"), "{}")?;
            ensure!(head.status() < 500, "{order} of {address}: {}", head.first_line);
        }
        Ok(())
    }
}

fn config(listen: SocketAddr, admin: SocketAddr, cluster: &str) -> String {
    format!(
        "listen = \"{listen}\"\nadmin.listen = \"{admin}\"\nthreads = 2\npolicy = \"priced\"\nlog.access = false\n\
         explain.sample = 1.0\nhealth.interval = \"1s\"\nkeys.unknown = \"share\"\n[cluster]\n{cluster}\
         [[tenants]]\nname = \"small\"\nkey_sha256 = [\"{KEY_SHA256}\"]\n\
         [tenants.contract]\nrequests_per_min = 1\nhard = true\n"
    )
}

/// Makes a certificate that ends tomorrow, and has it shown to engines that ask for one; none does.
fn ending_certificate(folder: &Path) -> Result<String> {
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 \
                     -subj /CN=router -keyout own.key -out own.crt";
    must(Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder))?;
    let [cert, key] = ["own.crt", "own.key"].map(|it| folder.join(it).display().to_string());
    Ok(format!("[engine_tls]\nca = \"{cert}\"\ncert = \"{cert}\"\nkey = \"{key}\"\n"))
}

fn pool(name: &str, replicas: &[SocketAddr], more: &str) -> String {
    let urls: Vec<String> = replicas.iter().map(|it| format!("\"http://{it}\"")).collect();
    let urls = urls.join(", ");
    format!("[[pools]]\nname = \"{name}\"\nmodels = [\"{name}\"]\n{more}replicas = [{urls}]\n")
}

fn client(model: &'static str) -> Client {
    let pause = Duration::from_millis(200);
    Client { model, pause, words: 50, tokens: 16, key: None, sessions: None }
}

fn clients() -> Vec<Client> {
    let quick = Duration::from_millis(50);
    let mut all = vec![
        Client { sessions: Some(60), words: 200, pause: quick, ..client("chat") },
        Client { sessions: Some(60), words: 200, pause: quick, ..client("chat") },
        Client { key: Some(KEY), ..client("chat") },
        Client { key: Some(KEY), ..client("chat") },
        Client { key: Some(KEY), ..client("chat") },
        Client { tokens: 200, ..client("cut") },
        Client { tokens: 200, ..client("cut") },
        Client { words: 2_000, ..client("slow") },
        Client { words: 2_000, ..client("slow") },
        Client { pause: quick, ..client("flaky") },
        client("flaky"),
        client("poison"),
        client("poison"),
        client("gone"),
        client("key"),
        client("scaled"),
    ];
    all.extend([Client { tokens: 60, pause: quick, ..client("lag") }; 6]);
    all
}
