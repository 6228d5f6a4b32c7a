//! `iree-compile`, which a hipDNN plugin may run.

use serde::Serialize;

use super::environment::Environment;
use super::hipdnn::HipdnnProbe;

/// Names the program, for the plugin and for this command.
const VARIABLE: &str = "FUSILLI_EXTERNAL_IREE_COMPILE";

/// The compiler that a hipDNN plugin runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IreeCompile {
    /// The plugin.
    pub needed_by: String,
    /// The program, if it was found.
    pub path: Option<String>,
}

/// Searches for the program if a plugin of the library needs it: Fusilli, which is built on IREE.
pub fn collect(hipdnn: &HipdnnProbe, environment: &Environment) -> Option<IreeCompile> {
    let engines = hipdnn.engines.iter().map(|engine| engine.name.as_str());
    let plugins = hipdnn.plugins.iter().map(|file| file.rsplit('/').next().unwrap_or(file));
    let needs_it = |name: &&str| {
        let name = name.to_ascii_lowercase();
        name.contains("fusilli") || name.contains("iree")
    };
    let needed_by = plugins.chain(engines).find(needs_it)?.to_owned();
    let path = match environment.path(VARIABLE) {
        Some(named) if named.components().count() > 1 => Some(named).filter(|file| file.is_file()),
        Some(named) => named.to_str().and_then(|name| environment.program(name)),
        None => environment.program("iree-compile"),
    };
    Some(IreeCompile { needed_by, path: path.map(|path| path.display().to_string()) })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::doctor::hipdnn::Engine;

    fn found(engine: &str, plugin: &str) -> HipdnnProbe {
        let engine = Engine { name: engine.into(), plugin: "p".into(), version: "1".into() };
        HipdnnProbe { engines: vec![engine], plugins: vec![plugin.into()], ..HipdnnProbe::default() }
    }

    #[test]
    fn it_matters_only_where_a_plugin_needs_it() {
        let nowhere = Environment::default();
        assert_eq!(collect(&HipdnnProbe::default(), &nowhere), None);
        assert_eq!(collect(&found("MIOPEN_ENGINE", "/fusilli/libmiopen_plugin.so"), &nowhere), None);
        let by = |found: &HipdnnProbe| collect(found, &nowhere).map(|iree| (iree.needed_by, iree.path));
        assert_eq!(by(&found("FUSILLI_ENGINE", "/e/plugin.so")), Some(("FUSILLI_ENGINE".into(), None)));
        let plugin = found("OTHER", "/e/libfusilli_plugin.so");
        assert_eq!(by(&plugin), Some(("libfusilli_plugin.so".into(), None)));
    }

    #[test]
    fn it_is_looked_for_on_the_path_unless_the_plugins_variable_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let [on_path, named] = ["iree-compile", "mine"].map(|name| folder.path().join(name).display().to_string());
        [&on_path, &named].iter().for_each(|file| std::fs::write(file, "").unwrap());
        let path = folder.path().display().to_string();
        let fusilli = found("FUSILLI_ENGINE", "");
        let look = |variables: &[(&str, &str)]| {
            let environment = variables.iter().copied().collect();
            collect(&fusilli, &environment).and_then(|iree| iree.path)
        };
        assert_eq!(look(&[("PATH", &path)]), Some(on_path));
        assert_eq!(look(&[("PATH", &path), (VARIABLE, &named)]), Some(named.clone()));
        assert_eq!(look(&[("PATH", &path), (VARIABLE, "mine")]), Some(named));
        assert_eq!(look(&[("PATH", &path), (VARIABLE, "/nowhere/iree-compile")]), None);
        assert_eq!(look(&[("PATH", "/nowhere")]), None);
    }
}
