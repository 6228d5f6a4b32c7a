//! Which backends a session tries on this machine, in which order and why. Uses the plugin's own routing function.

use amdgpu_ep::routing::{self, BackendName, Platform, Query, Refusal, RoutingTable, RuledOut};
use amdgpu_ep::selection::{self, Candidate};
use amdgpu_ep::session_route::FORCE_ARCH_VARIABLE;
use hip::DriverKind;
use options::{Hint, Profile};
use serde::Serialize;

use super::drivers::{Device, Driver};
use super::environment::Settings;
use super::plugin::{Plugin, PluginProbe};
use super::{Asker, Question};

/// The result of `profile=auto` for a session without hints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Routing {
    /// The architecture used for routing; absent without a device.
    pub arch: Option<String>,
    /// Whether `AMDGPU_EP_FORCE_ARCH` set it.
    pub forced: bool,
    /// The backends to try, best first.
    pub candidates: Vec<Step>,
    /// The same for a language model.
    pub language_models: Vec<Step>,
    /// The backends that cannot be used.
    pub ruled_out: Vec<Step>,
    /// Why there are no candidates.
    pub error: Option<String>,
}

/// A backend, with the reason for its position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The backend.
    pub backend: String,
    /// The reason.
    pub reason: String,
}

/// Finds the candidates for the first device of the session's driver.
pub fn collect(asker: &Asker, settings: &Settings, drivers: &[Driver], plugin: &Plugin) -> Routing {
    let on_loaders_path = |file: &str| {
        let answer = asker.ask::<PluginProbe>(&Question::Plugin { file: file.into() });
        answer.value.map_or(answer.detail, |said| said.error)
    };
    let ruled_out = ruled_out(plugin, Platform::HERE, on_loaders_path);
    route(settings, drivers, Platform::HERE, &ruled_out)
}

/// The backends that are missing or unusable. `loader` reports what is wrong with a file on the loader's path.
fn ruled_out(plugin: &Plugin, platform: Platform, loader: impl Fn(&str) -> Option<String>) -> Vec<RuledOut> {
    let exists = |backend: &&BackendName| **backend != BackendName::DirectX || platform == Platform::Windows;
    let found = |backend: &BackendName| {
        // The plugin uses the first file that loads.
        let name = backend.to_string();
        let installed: Vec<_> = plugin.backends.iter().filter(|backend| backend.name == name).collect();
        if installed.iter().any(|backend| backend.error.is_none()) {
            return None;
        }
        if !installed.is_empty() {
            return Some("its library cannot be used".to_owned());
        }
        let file = dylib::file_name(backend.stem()?);
        loader(&file)?;
        Some(format!("{file} is not installed"))
    };
    let all = BackendName::NAMED.iter().filter(exists);
    all.filter_map(|backend| Some(RuledOut { backend: backend.clone(), reason: found(backend)? })).collect()
}

/// The device of a session that names none.
fn of_sessions(devices: &[Device]) -> Option<&Device> {
    let known: Vec<Candidate> = (0..)
        .zip(devices)
        .map(|(id, device)| Candidate {
            id,
            integrated: device.integrated,
            total_memory: usize::try_from(device.memory_bytes).unwrap_or(usize::MAX),
        })
        .collect();
    devices.get(selection::select(&known, &[], None).ok()? as usize)
}

fn route(settings: &Settings, drivers: &[Driver], platform: Platform, ruled_out: &[RuledOut]) -> Routing {
    let steps = |all: &[RuledOut]| {
        all.iter().map(|out| Step { backend: out.backend.to_string(), reason: out.reason.clone() }).collect()
    };
    let mut routing = Routing { ruled_out: steps(ruled_out), ..Routing::default() };
    let forced = settings.set(FORCE_ARCH_VARIABLE).map(|text| text.trim().to_ascii_lowercase());
    let forced = forced.filter(|arch| !arch.is_empty());
    let driver = drivers.iter().find(|driver| driver.kind == settings.session_driver);
    let device = driver.and_then(|driver| of_sessions(&driver.found.devices));
    routing.forced = forced.is_some();
    let Some(arch) = forced.or_else(|| device.map(|device| device.arch.clone())) else {
        routing.error = Some("no device is available".to_owned());
        return routing;
    };
    let query = Query {
        arch: &arch,
        driver: settings.session_driver.parse().unwrap_or(DriverKind::Amd),
        platform,
        model_arch: None,
        model_fw: None,
        profile: Profile::Auto,
        backend_library: None,
        overrides: &RoutingTable::default(),
        ruled_out,
    };
    let candidates = |query: &Query<'_>| -> Result<Vec<Step>, Refusal> {
        let found = routing::route(query)?.into_iter();
        Ok(found.map(|found| Step { backend: found.backend.to_string(), reason: found.reason }).collect())
    };
    let language_model = Hint::new("llm");
    let of_language_models = candidates(&Query { model_arch: language_model.as_ref(), ..query });
    routing.language_models = of_language_models.unwrap_or_default();
    match candidates(&query) {
        Ok(found) => routing.candidates = found,
        Err(Refusal::NoneLeft(_)) => routing.error = Some("no backend is usable".to_owned()),
        Err(refusal) => routing.error = Some(refusal.to_string()),
    }
    routing.arch = Some(arch);
    routing
}

#[cfg(test)]
#[cfg(target_os = "linux")]
pub(super) mod tests {
    use super::*;
    use crate::doctor::plugin::tests::backend;
    use crate::doctor::verdict::tests::healthy;

    /// The routing of a machine with every backend for Linux except hipgpu.
    pub fn routing(arch: &str) -> Routing {
        let settings = Settings::read(&[(FORCE_ARCH_VARIABLE, arch)].into_iter().collect());
        let plugin = Plugin { backends: vec![backend("hip", None), backend("migraphx", None)], ..Plugin::default() };
        let out = ruled_out(&plugin, Platform::Linux, |_| Some("no such file".to_owned()));
        route(&settings, &healthy().drivers, Platform::Linux, &out)
    }

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| step.backend.as_str()).collect()
    }

    #[test]
    fn the_order_is_that_of_the_plugin() {
        let found = routing("");
        assert_eq!((found.arch.as_deref(), found.forced), (Some("gfx1100"), false));
        assert_eq!(names(&found.candidates), ["migraphx", "hip"]);
        assert_eq!(names(&found.language_models), ["hip", "migraphx"]);
        assert_eq!(found.ruled_out[0].reason, "libhipgpu-backend.so is not installed");
        let forced = routing(" GFX1151 ");
        assert_eq!((forced.arch.as_deref(), forced.forced), (Some("gfx1151"), true));
    }

    #[test]
    fn of_an_integrated_and_a_discrete_gpu_the_discrete_one_counts() {
        let mut drivers = healthy().drivers;
        let amd = drivers.iter_mut().find(|driver| driver.kind == "amd").unwrap();
        let discrete = amd.found.devices[0].clone();
        let integrated =
            Device { arch: "gfx1036".into(), integrated: true, memory_bytes: 4 * discrete.memory_bytes, ..discrete };
        amd.found.devices.insert(0, integrated);
        let arch = |drivers: &[Driver]| {
            route(&Settings::read(&Default::default()), drivers, Platform::Linux, &[]).arch.unwrap()
        };
        assert_eq!(arch(&drivers), "gfx1100");
        // As with HIP_VISIBLE_DEVICES=0.
        drivers.iter_mut().for_each(|driver| driver.found.devices.truncate(1));
        assert_eq!(arch(&drivers), "gfx1036");
    }

    #[test]
    fn a_broken_backend_is_ruled_out_unless_another_file_of_its_name_works() {
        let broken = || backend("migraphx", Some("libmigraphx_c.so: not found\n  help: install it"));
        let ruled_out_of = |backends| {
            let plugin = Plugin { backends, ..Plugin::default() };
            ruled_out(&plugin, Platform::Linux, |_| None)
        };
        let out = ruled_out_of(vec![broken()]);
        assert_eq!(out, [RuledOut { backend: BackendName::MiGraphX, reason: "its library cannot be used".into() }]);
        assert_eq!(ruled_out_of(vec![broken(), backend("migraphx", None)]), []);
    }

    #[test]
    fn without_a_device_there_is_a_reason_instead() {
        let settings = Settings::read(&Default::default());
        let found = route(&settings, &[], Platform::Linux, &[]);
        assert_eq!((found.arch, found.error.as_deref()), (None, Some("no device is available")));
    }
}
