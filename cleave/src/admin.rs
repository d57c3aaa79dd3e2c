//! Where a router's admin port is and what opens it, the same for every command that asks there.
//! The token is read from a file and never from a flag, because every user of the machine can see
//! flags.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// How to reach an admin port.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminPort {
    /// The router's admin port, with or without http://
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9090")]
    admin: String,
    /// File that holds the admin token, where the port asks for one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AdminPort {
    /// Names the port as HOST:PORT.
    pub(crate) fn authority(&self) -> anyhow::Result<&str> {
        let given = self.admin.trim_end_matches('/');
        match given.split_once("://") {
            None => Ok(given),
            Some(("http", authority)) => Ok(authority),
            Some(_) => bail!("{given}: give the admin port as http://HOST:PORT"),
        }
    }

    /// Names the port as http://HOST:PORT.
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        self.authority().map(|it| format!("http://{it}"))
    }

    /// Reads the token, if one is given.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the token in {}", file.display()))?;
        Ok(Some(text.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(admin: &str) -> AdminPort {
        AdminPort { admin: admin.to_owned(), token_file: None }
    }

    #[test]
    fn the_scheme_may_be_left_out() {
        for given in ["127.0.0.1:9090", "http://127.0.0.1:9090", "http://127.0.0.1:9090/"] {
            assert_eq!(port(given).url().unwrap(), "http://127.0.0.1:9090");
            assert_eq!(port(given).authority().unwrap(), "127.0.0.1:9090");
        }
        let said = port("https://127.0.0.1:9090").url().unwrap_err().to_string();
        assert!(said.contains("http://HOST:PORT"), "{said}");
    }

    #[test]
    fn a_token_is_read_without_the_end_of_its_line() {
        let file = std::env::temp_dir().join(format!("cleave-token-{}", std::process::id()));
        std::fs::write(&file, "hunter2\n").unwrap();
        let port = AdminPort { token_file: Some(file.clone()), ..port("a:1") };
        let token = port.token().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(token.as_deref(), Some("hunter2"));
        assert!(port.token().unwrap_err().to_string().contains("cleave-token-"));
    }
}
