//! What the real API server denies or does not have: each is an alert that says what to do.

use std::path::Path;

use anyhow::{Result, ensure};

use super::api_server::ApiServer;
use crate::rig;
use crate::server::Server;

/// What is wrong, and what of it must be said.
struct Wrong {
    name: &'static str,
    account: &'static str,
    pool: &'static str,
    /// Kind and reason of the event, or other words of its line.
    event: [&'static str; 2],
    advice: &'static str,
}

const WRONGS: [Wrong; 3] = [
    Wrong {
        name: "denied",
        account: "powerless",
        pool: "kubernetes.selector = \"app=vllm\"",
        event: ["discovery", "forbidden"],
        advice: "deploy/kubernetes/base/rbac.yaml",
    },
    // This API server knows no InferencePool, as a cluster without the extension.
    Wrong {
        name: "no-crd",
        account: "admin",
        pool: "kubernetes.inference_pool = \"chat\"",
        event: ["discovery", "absent"],
        advice: "are the CRDs of the Gateway API Inference Extension installed",
    },
    Wrong {
        name: "no-scale",
        account: "admin",
        pool: "kubernetes.selector = \"app=none\"\n\
               scaling = { mode = \"kubernetes\", target = \"leaderworkerset/vllm\", min = 1, max = 2 }",
        event: ["scaling", "absent"],
        advice: "scaling.target",
    },
];

pub(super) fn run(api: &ApiServer, binary: &Path, folder: &Path) -> Result<()> {
    for it in &WRONGS {
        let account = match it.account {
            "admin" => folder.join("kubeconfig"),
            other => api.kubeconfig_of("llm", other)?,
        };
        let config = format!(
            "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n[[pools]]\nname = \"a\"\n\
             discover = \"kubernetes\"\nkubernetes.kubeconfigs = [\"{}\"]\n{}\n",
            account.display(),
            it.pool
        );
        let mut command = rig::router(binary, folder, &config)?;
        let mut router = Server::start(it.name, &mut command, folder)?;
        let said = router.wait_for(rig::START_LIMIT, |lines| {
            let is_alert = |line: &&&str| it.event.iter().all(|word| line.contains(word));
            lines.iter().find(is_alert).map(|it| (*it).to_owned())
        })?;
        println!("{}: {said}", it.name);
        ensure!(said.contains(it.advice), "it does not say {}", it.advice);
    }
    Ok(())
}
