//! A list of all that is linked into the binary (SBOM), in the format of `CycloneDX`.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Goods;
use crate::{dependencies, repo};

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
}

#[derive(Deserialize)]
struct CargoPackage {
    name: String,
    version: String,
    license: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bom {
    #[serde(rename = "bomFormat")]
    format: &'static str,
    spec_version: &'static str,
    version: u32,
    metadata: BomMetadata,
    components: Vec<Component>,
}

#[derive(Serialize)]
struct BomMetadata {
    component: Component,
}

#[derive(Serialize)]
struct Component {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    version: String,
    purl: String,
    licenses: Vec<License>,
}

#[derive(Serialize)]
struct License {
    expression: String,
}

pub(super) fn write(goods: &Goods) -> Result<()> {
    let told = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(repo::root())
        .output()
        .context("start cargo metadata")?;
    ensure!(told.status.success(), "cargo metadata ended with {}", told.status);
    let CargoMetadata { packages } = serde_json::from_slice(&told.stdout)?;
    let linked = dependencies::linked()?;
    let is_linked = |it: &&CargoPackage| {
        linked.iter().any(|one| one.starts_with(&format!("{} v{}", it.name, it.version)))
    };
    let components: Vec<Component> = packages.iter().filter(is_linked).map(component).collect();
    ensure!(
        components.len() == linked.len(),
        "{} of {} crates found",
        components.len(),
        linked.len()
    );
    let own = CargoPackage {
        name: "cleave".to_owned(),
        version: goods.version.clone(),
        license: Some("Apache-2.0".to_owned()),
    };
    let own = Component { kind: "application", ..component(&own) };
    let bom = Bom {
        format: "CycloneDX",
        spec_version: "1.5",
        version: 1,
        metadata: BomMetadata { component: own },
        components,
    };
    let file = goods.out.join(format!("cleave-{}.cdx.json", goods.version));
    fs::write(&file, serde_json::to_string_pretty(&bom)? + "\n")?;
    println!("{} crates listed in {}", bom.components.len(), file.display());
    Ok(())
}

fn component(package: &CargoPackage) -> Component {
    let CargoPackage { name, version, license } = package;
    let expression = license.clone().map(|it| it.replace('/', " OR "));
    Component {
        kind: "library",
        name: name.clone(),
        version: version.clone(),
        purl: format!("pkg:cargo/{name}@{version}"),
        licenses: expression.map(|expression| License { expression }).into_iter().collect(),
    }
}
