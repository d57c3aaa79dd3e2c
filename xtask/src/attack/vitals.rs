//! How the router's process is, seen from outside: does it live, what does it hold, what does it say of
//! its own books, has it panicked.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::http1;
use crate::rig;

/// The clock ticks in which Linux counts processor time.
const TICKS_PER_SECOND: f64 = 100.0;

/// What the process holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) files: usize,
    pub(super) resident_kib: u64,
}

impl Held {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).context("the process is gone")?.count();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
        let kib = line.and_then(|it| it.split_whitespace().next()?.parse().ok());
        Ok(Self { files, resident_kib: kib.context("no resident memory")? })
    }
}

/// Seconds of processor time that the process has used.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold blanks; the two figures are the 12th and 13th after it.
    let after = stat.rsplit_once(')').context("no name")?.1;
    let ticks = after.split_whitespace().skip(11).take(2);
    Ok(ticks.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND)
}

/// Reads a page of the admin port.
pub(super) fn page(admin: SocketAddr, path: &str) -> Result<Value> {
    let (head, body) = http1::get_as(rig::TOKEN, admin, path)?;
    anyhow::ensure!(head.is_success(), "{path}: {}", head.first_line);
    serde_json::from_slice(&body).with_context(|| format!("{path} is not JSON"))
}

/// Lists what the books still hold; nothing when all is settled.
pub(super) fn open_books(admin: SocketAddr) -> Result<Vec<String>> {
    let mut open = Vec::new();
    let status = page(admin, "/status")?;
    for pool in array(&status["pools"]) {
        note(&mut open, "pool", pool, &["requests_in_flight"]);
        note(&mut open, "line", &pool["queue"], &["waiting", "waiting_bytes"]);
        for class in array(&pool["queue"]["classes"]) {
            note(&mut open, "class", class, &["waiting", "waiting_mu"]);
        }
        for replica in array(&pool["replicas"]) {
            note(&mut open, "replica", replica, &["in_flight"]);
        }
    }
    for pool in array(&page(admin, "/load")?["pools"]) {
        for replica in array(&pool["replicas"]) {
            note(&mut open, "load", replica, &["in_flight", "in_flight_mu"]);
            let booked = replica["booked"].as_object();
            let names: Vec<&str> = booked.into_iter().flatten().map(|it| it.0.as_str()).collect();
            note(&mut open, "booked", &replica["booked"], &names);
        }
    }
    for pool in array(&page(admin, "/tenants")?["pools"]) {
        for tenant in array(&pool["tenants"]) {
            let name = tenant["name"].as_str().unwrap_or("tenant");
            note(&mut open, name, tenant, &["waiting", "in_flight"]);
        }
    }
    Ok(open)
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn note(open: &mut Vec<String>, whose: &str, of: &Value, names: &[&str]) {
    for name in names {
        let figure = &of[*name];
        if figure.as_f64().is_none_or(|it| 1e-6 < it.abs()) {
            open.push(format!("{whose}.{name} = {figure}"));
        }
    }
}

/// What a tenant has used since the start: tokens and requests, of all kinds.
pub(super) fn used(admin: SocketAddr, tenant: &str) -> Result<(u64, u64)> {
    let page = page(admin, "/tenants")?;
    let (mut tokens, mut requests) = (0, 0);
    for pool in array(&page["pools"]) {
        for used in array(&pool["tenants"])
            .filter(|it| it["name"] == tenant)
            .flat_map(|it| array(&it["used"]))
        {
            tokens += used["tokens"].as_u64().unwrap_or(0);
            requests += used["requests"].as_u64().unwrap_or(0);
        }
    }
    Ok((tokens, requests))
}

/// The largest figure that is booked anywhere, to tell an absurd one from a large one.
pub(super) fn largest_booking(admin: SocketAddr) -> Result<f64> {
    let load = page(admin, "/load")?;
    let pools: Vec<&Value> = array(&load["pools"]).collect();
    let booked = pools
        .into_iter()
        .flat_map(|it| array(&it["replicas"]))
        .filter_map(|it| it["booked"].as_object())
        .flat_map(|it| it.values().filter_map(Value::as_f64));
    Ok(booked.fold(0.0, f64::max))
}

/// Finds words of a panic in what the router printed.
pub(super) fn panics(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|it| it.contains("panicked"));
    lines.take(3).map(str::to_owned).collect()
}

/// Counts the panics that the router itself has counted, in decisions and outside them.
pub(super) fn panics_counted(admin: SocketAddr) -> u64 {
    let counters = ["cleave_panics_total", "cleave_pool_panics_total"];
    counters.iter().map(|it| rig::counter(admin, it).unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_named_and_what_is_settled_is_not() {
        let of: Value = serde_json::from_str(r#"{"a":0,"b":0.0,"c":3,"d":1.8446744073709552e19}"#)
            .expect("it is JSON");
        let mut open = Vec::new();
        note(&mut open, "x", &of, &["a", "b", "c", "d", "e"]);
        let names: Vec<&str> = open.iter().filter_map(|it| it.split(' ').next()).collect();
        assert_eq!(names, ["x.c", "x.d", "x.e"]);
    }

    #[test]
    fn this_process_holds_files_and_memory() {
        let held = Held::of(std::process::id()).expect("this process lives");
        assert!(0 < held.files && 0 < held.resident_kib);
        assert!(0.0 <= cpu_seconds(std::process::id()).expect("it has a clock"));
    }
}
