//! The routing policy, row by row.

use super::*;

/// A query with defaults: `auto` on an AMD GPU on Linux, with no backend ruled out.
fn query<'q>(arch: &'q str, overrides: &'q RoutingTable) -> Query<'q> {
    Query {
        arch,
        driver: DriverKind::Amd,
        platform: Platform::Linux,
        model_arch: None,
        model_fw: None,
        profile: Profile::Auto,
        backend_library: None,
        overrides,
        ruled_out: &[],
    }
}

fn names(query: &Query<'_>) -> String {
    match route(query) {
        Ok(candidates) => {
            candidates.iter().map(|candidate| candidate.backend.to_string()).collect::<Vec<_>>().join(" ")
        }
        Err(refusal) => panic!("{query:?}: {refusal}"),
    }
}

#[test]
fn auto_depends_on_the_architecture() {
    let none = RoutingTable::default();
    for (arch, linux, windows) in [
        ("gfx900", "migraphx hip", "directx migraphx hip"),
        ("gfx90a:sramecc+:xnack-", "migraphx hip", "directx migraphx hip"),
        ("gfx942", "migraphx hip", "directx migraphx hip"),
        ("gfx950", "migraphx hip", "directx migraphx hip"),
        ("gfx1010", "migraphx hip", "directx migraphx hip"),
        ("gfx1032", "migraphx hip", "directx migraphx hip"),
        ("gfx1100", "migraphx hip", "migraphx hip directx"),
        ("gfx1151", "migraphx hip", "migraphx hip directx"),
        ("gfx1170", "migraphx hip", "directx migraphx hip"),
        ("gfx1201", "migraphx hip", "migraphx hip directx"),
        ("gfx1300", "migraphx hip", "directx migraphx hip"),
        ("", "migraphx hip", "directx migraphx hip"),
        ("something else", "migraphx hip", "directx migraphx hip"),
    ] {
        assert_eq!(names(&query(arch, &none)), linux, "{arch} on Linux");
        assert_eq!(names(&Query { platform: Platform::Windows, ..query(arch, &none) }), windows, "{arch} on Windows");
    }
}

#[test]
fn the_reason_names_what_the_device_is() {
    let none = RoutingTable::default();
    for (arch, reason) in [
        ("gfx90a", "a CDNA or GCN GPU"),
        ("gfx1030", "an RDNA2 GPU"),
        ("gfx1100", "an RDNA3 GPU"),
        ("gfx1200", "an RDNA4 GPU"),
        ("", "the default"),
    ] {
        let candidates = route(&query(arch, &none)).unwrap();
        assert_eq!(candidates[0].reason, reason, "{arch}");
        assert_eq!(candidates[1].reason, "if migraphx cannot run it");
    }
}

#[test]
fn a_language_model_tries_hip_first_on_every_architecture() {
    let none = RoutingTable::default();
    for word in language_models() {
        let hint = Hint::new(&word.to_uppercase());
        for arch in
            ["gfx90a:sramecc+:xnack-", "gfx942", "gfx1030", "gfx1100", "gfx1150", "gfx1151", "gfx1170", "gfx1201", ""]
        {
            let asked = Query { model_arch: hint.as_ref(), ..query(arch, &none) };
            assert_eq!(names(&asked), "hip migraphx", "{word} on {arch}");
            let asked = Query { platform: Platform::Windows, ..asked };
            assert_eq!(names(&asked), "hip migraphx directx", "{word} on {arch} under Windows");
        }
    }
    let vision = Hint::new("resnet");
    assert_eq!(names(&Query { model_arch: vision.as_ref(), ..query("gfx1151", &none) }), "migraphx hip");
}

#[test]
fn a_language_model_goes_to_migraphx_where_hip_cannot_be_used() {
    let none = RoutingTable::default();
    let llama = Hint::new("llama");
    let ruled_out = [RuledOut { backend: BackendName::Hip, reason: "libhip-backend.so is missing".to_owned() }];
    let asked = Query { model_arch: llama.as_ref(), ruled_out: &ruled_out, ..query("gfx1100", &none) };
    let left = route(&asked).unwrap();
    assert_eq!((left.len(), &left[0].backend), (1, &BackendName::MiGraphX));
    assert_eq!(left[0].reason, "a language model; unusable backends skipped; hip: libhip-backend.so is missing");
}

#[test]
fn webnn_uses_directx_where_it_exists() {
    let none = RoutingTable::default();
    let (webnn, llama) = (Hint::new(" WebNN "), Hint::new("llama"));
    for arch in ["gfx1100", "gfx1151", "gfx90a", ""] {
        let linux = Query { model_fw: webnn.as_ref(), model_arch: llama.as_ref(), ..query(arch, &none) };
        assert_eq!(names(&Query { platform: Platform::Windows, ..linux }), "directx migraphx hip", "{arch}");
        assert_eq!(names(&linux), names(&Query { model_fw: None, ..linux }), "{arch}");
    }
}

#[test]
fn drivers_without_an_amd_gpu_get_the_hip_backend_only() {
    let none = RoutingTable::default();
    for driver in [DriverKind::Host, DriverKind::Nvidia] {
        for platform in Platform::ALL {
            assert_eq!(names(&Query { driver, platform, ..query("gfx1100", &none) }), "hip");
        }
    }
}

#[test]
fn an_explicit_profile_is_that_backend_or_a_refusal() {
    let none = RoutingTable::default();
    for (profile, linux, windows) in [
        (Profile::Eager, Some("hip"), Some("directx")),
        (Profile::Optimized, Some("migraphx"), Some("migraphx")),
        (Profile::Migraphx, Some("migraphx"), Some("migraphx")),
        (Profile::Directx, None, Some("directx")),
        (Profile::Hip, Some("hip"), Some("hip")),
        (Profile::Hipgpu, Some("hipgpu"), Some("hipgpu")),
    ] {
        for (platform, want) in [(Platform::Linux, linux), (Platform::Windows, windows)] {
            let asked = Query { profile, platform, ..query("gfx1100", &none) };
            match want {
                Some(want) => assert_eq!(names(&asked), want, "{profile} on {platform:?}"),
                None => assert_eq!(route(&asked), Err(Refusal::WindowsOnly { profile })),
            }
        }
    }
    let message = route(&Query { profile: Profile::Directx, ..query("gfx1100", &none) }).unwrap_err().to_string();
    assert!(message.contains("exists on Windows only\n  help: use profile=auto"), "{message}");
}

#[test]
fn the_users_rows_come_before_the_built_in_rules() {
    let table = "gfx11 llama hip\ngfx11 * /opt/ep/libother.so\n* bert directx\n* gpt2 hipgpu\n";
    let table = RoutingTable::parse(table, Path::new("/")).unwrap();
    let asked = |arch, model| names(&Query { model_arch: Hint::new(model).as_ref(), ..query(arch, &table) });
    assert_eq!(asked("gfx1100", "llama"), "hip migraphx");
    assert_eq!(asked("gfx1100", "resnet"), "/opt/ep/libother.so migraphx hip");
    assert_eq!(asked("gfx1100", ""), "/opt/ep/libother.so migraphx hip");
    assert_eq!(asked("gfx90a", "gpt2"), "hipgpu migraphx hip");
    assert_eq!(asked("gfx90a", "resnet"), "migraphx hip");

    let bert = Hint::new("bert");
    let lost = route(&Query { model_arch: bert.as_ref(), ..query("gfx90a", &table) }).unwrap();
    assert_eq!(lost[0].backend, BackendName::MiGraphX);
    let want = "line 3 of the routing table; unusable backends skipped; directx: it exists on Windows only";
    assert_eq!(lost[0].reason, want);

    let explicit = Query { profile: Profile::Migraphx, ..query("gfx1100", &table) };
    assert_eq!(names(&explicit), "migraphx", "an explicit profile is not overridden");
}

#[test]
fn a_backend_known_to_be_unusable_is_not_a_candidate() {
    let none = RoutingTable::default();
    let out = |backend, reason: &str| RuledOut { backend, reason: reason.to_owned() };
    let migraphx = [out(BackendName::MiGraphX, "libmigraphx_c is missing")];
    let auto = Query { ruled_out: &migraphx, ..query("gfx1100", &none) };
    let left = route(&auto).unwrap();
    assert_eq!((left.len(), &left[0].backend), (1, &BackendName::Hip));
    assert_eq!(left[0].reason, "an RDNA3 GPU; unusable backends skipped; migraphx: libmigraphx_c is missing");

    let refusal = route(&Query { profile: Profile::Optimized, ..auto }).unwrap_err();
    assert_eq!(refusal, Refusal::Unusable(migraphx[0].clone()));
    assert!(refusal.to_string().starts_with("the backend migraphx cannot be used: libmigraphx_c is missing\n"));

    let both = [migraphx[0].clone(), out(BackendName::Hip, "truncated")];
    let message = route(&Query { ruled_out: &both, ..auto }).unwrap_err().to_string();
    assert!(
        message.starts_with("no backend is usable; migraphx: libmigraphx_c is missing; hip: truncated\n"),
        "{message}"
    );
}

#[test]
fn a_library_by_path_is_the_only_candidate_and_contradicts_a_profile() {
    let none = RoutingTable::default();
    let asked = Query { backend_library: Some(Path::new("/opt/ep.so")), ..query("gfx1100", &none) };
    assert_eq!(names(&asked), "/opt/ep.so");
    assert!(asked.is_explicit());
    let refusal = route(&Query { profile: Profile::Hip, ..asked }).unwrap_err();
    assert!(refusal.to_string().starts_with("backend_library is /opt/ep.so and profile is hip"), "{refusal}");
}
