//! The modules that are installed, with what the labels of their images ask for.

use std::collections::BTreeMap;

use portsd::model::Demand;
use portsd::registry::Labels;

use crate::Failure;

/// A module that can be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The name of its image, which begins the names of its instances.
    pub name: String,
    /// What an instance asks for when it is installed.
    pub demand: Demand,
}

impl Module {
    /// NethVoice with its signalling and media ports; the published label covers only a part of
    /// them.
    pub fn nethvoice() -> Self {
        Self { name: "nethvoice".to_owned(), demand: Demand { tcp: 36, udp: 2003 } }
    }

    /// The demand in the protocol in which it is larger.
    pub fn size(&self) -> u16 {
        self.demand.tcp.max(self.demand.udp)
    }
}

/// Published modules.
pub struct Catalogue {
    /// All of them, also those that ask for no port.
    pub modules: Vec<Module>,
}

impl Catalogue {
    /// Reads the modules that the tests and the demo use too.
    pub fn read() -> Result<Self, Failure> {
        let text = include_str!("../../tests/data/modules.json");
        let entries: Vec<BTreeMap<String, Option<String>>> = serde_json::from_str(text)?;
        let modules = entries.into_iter().map(module).collect::<Result<_, _>>()?;
        Ok(Self { modules })
    }
}

/// The fields of an entry are the labels, without their prefix and with underscores.
fn module(entry: BTreeMap<String, Option<String>>) -> Result<Module, Failure> {
    let name = entry.get("module").cloned().flatten().ok_or("a module without a name")?;
    let labels = entry.into_iter().filter_map(|(field, value)| {
        Some((format!("org.nethserver.{}", field.replace('_', "-")), value?))
    });
    let demand = Labels::parse(&labels.collect())?.demand;
    Ok(Module { name, demand })
}
