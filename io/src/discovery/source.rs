//! The ways to say where replicas are found, each one text: `file:PATH`, `dns:HOST:PORT`, `srv:NAME`;
//! `dns+https:HOST:PORT` and `srv+https:NAME` for replicas under TLS; and `kubernetes`, of which the rest is
//! said in a section of its own.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use super::kubernetes::KubernetesSettings;

/// Where replicas are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A list of addresses, one on a line, read again when it changes.
    File(PathBuf),
    /// Every address that a name has (A and AAAA), on one port.
    Addresses { name: String, port: u16, server: Option<SocketAddr>, is_secure: bool },
    /// Every service of a name (SRV), each with its own host and port.
    Services { name: String, server: Option<SocketAddr>, is_secure: bool },
    /// Every pod that matches.
    Kubernetes(Box<KubernetesSettings>),
}

/// The text says no place where replicas could be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSource {
    #[error(
        "write it as file:PATH, dns:HOST:PORT, srv:NAME (dns+https: or srv+https: for TLS) or kubernetes"
    )]
    Form,
    #[error("give the port of the replicas, as in dns:replicas.internal:8000")]
    Port,
    #[error("a name server is an address, as in dns://10.0.0.2:53/replicas.internal:8000")]
    Server,
    #[error("not a name: up to 253 letters, digits, hyphens and underscores in parts of up to 63")]
    Name,
}

impl Source {
    /// The name that replicas under TLS show though they are found by their addresses.
    pub fn server_name(&self) -> Option<&str> {
        match self {
            Self::Addresses { name, is_secure: true, .. } => Some(name),
            Self::File(_)
            | Self::Addresses { .. }
            | Self::Services { .. }
            | Self::Kubernetes(_) => None,
        }
    }
}

impl FromStr for Source {
    type Err = BadSource;

    fn from_str(text: &str) -> Result<Self, BadSource> {
        if text == "kubernetes" {
            return Ok(Self::Kubernetes(Box::default()));
        }
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            Some((kind @ ("dns" | "dns+https"), rest)) => {
                let is_secure = kind != "dns";
                let (server, rest) = split_server(rest)?;
                let (name, port) = rest.rsplit_once(':').ok_or(BadSource::Port)?;
                let port = port.parse().map_err(|_| BadSource::Port)?;
                Ok(Self::Addresses { name: check_name(name)?, port, server, is_secure })
            }
            Some((kind @ ("srv" | "srv+https"), rest)) => {
                let is_secure = kind != "srv";
                let (server, name) = split_server(rest)?;
                Ok(Self::Services { name: check_name(name)?, server, is_secure })
            }
            _ => Err(BadSource::Form),
        }
    }
}

/// Takes off the name server that may stand before the name, as in `//10.0.0.2:53/name`.
fn split_server(rest: &str) -> Result<(Option<SocketAddr>, &str), BadSource> {
    let Some(rest) = rest.strip_prefix("//") else { return Ok((None, rest)) };
    let (server, name) = rest.split_once('/').ok_or(BadSource::Server)?;
    let server = server.parse().map_err(|_| BadSource::Server)?;
    Ok((Some(server), name))
}

fn check_name(name: &str) -> Result<String, BadSource> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_')
    };
    if name.len() <= 253 && name.split('.').all(is_label) { Ok(name) } else { Err(BadSource::Name) }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = |f: &mut fmt::Formatter<'_>, server: &Option<SocketAddr>| match server {
            Some(server) => write!(f, "//{server}/"),
            None => Ok(()),
        };
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Addresses { name, port, server: at, is_secure } => {
                f.write_str(if *is_secure { "dns+https:" } else { "dns:" })?;
                server(f, at)?;
                write!(f, "{name}:{port}")
            }
            Self::Services { name, server: at, is_secure } => {
                f.write_str(if *is_secure { "srv+https:" } else { "srv:" })?;
                server(f, at)?;
                f.write_str(name)
            }
            Self::Kubernetes(settings) => {
                let namespace = settings.namespace.as_deref().unwrap_or_default();
                match &settings.inference_pool {
                    Some(pool) => write!(f, "kubernetes:{namespace}/inferencepool/{pool}"),
                    None if settings.selector.is_empty() => f.write_str("kubernetes"),
                    None => write!(f, "kubernetes:{namespace}/{}", settings.selector),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written_alike() {
        for text in [
            "file:/etc/cleave/replicas",
            "dns:replicas.internal:8000",
            "dns://10.0.0.2:53/replicas.internal:8000",
            "srv:_http._tcp.replicas.internal",
            "dns+https:replicas.internal:8443",
            "srv+https:_https._tcp.replicas.internal",
            "srv://[::1]:5353/_http._tcp.replicas.internal",
            "kubernetes",
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_source_is_refused_with_its_remedy() {
        let check = |text: &str, want| assert_eq!(text.parse::<Source>(), Err(want), "{text}");
        check("replicas.txt", BadSource::Form);
        check("file:", BadSource::Form);
        check("dns:replicas.internal", BadSource::Port);
        check("dns://resolver/replicas.internal:8000", BadSource::Server);
        check("srv:", BadSource::Name);
        check("dns:a..b:1", BadSource::Name);
        check(&format!("srv:{}", "a".repeat(64)), BadSource::Name);
    }
}
