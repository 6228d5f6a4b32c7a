//! Properties that hold for every query.

use proptest::prelude::*;

use super::*;

/// A query together with everything it borrows.
#[derive(Clone, Debug)]
struct Owned {
    arch: String,
    driver: DriverKind,
    platform: Platform,
    model_arch: Option<Hint>,
    model_fw: Option<Hint>,
    profile: Profile,
    backend_library: Option<PathBuf>,
    overrides: RoutingTable,
    ruled_out: Vec<RuledOut>,
}

impl Owned {
    fn query(&self) -> Query<'_> {
        Query {
            arch: &self.arch,
            driver: self.driver,
            platform: self.platform,
            model_arch: self.model_arch.as_ref(),
            model_fw: self.model_fw.as_ref(),
            profile: self.profile,
            backend_library: self.backend_library.as_deref(),
            overrides: &self.overrides,
            ruled_out: &self.ruled_out,
        }
    }
}

fn any_arch() -> impl Strategy<Value = String> {
    let known = ["gfx900", "gfx90a:xnack-", "gfx942", "gfx1030", "gfx1100", "gfx1151", "gfx1170", "gfx1201", "host"];
    prop_oneof![prop::sample::select(known.to_vec()).prop_map(str::to_owned), "gfx[0-9a-f]{0,4}", ".{0,10}"]
}

fn any_backend() -> impl Strategy<Value = BackendName> {
    let named = BackendName::NAMED.to_vec();
    prop_oneof![4 => prop::sample::select(named), 1 => Just(BackendName::Library("/opt/x.so".into()))]
}

fn any_hint() -> impl Strategy<Value = Option<Hint>> {
    let words: Vec<_> = language_models().chain(["webnn", "resnet", ""]).collect();
    prop::sample::select(words).prop_map(Hint::new)
}

fn any_table() -> impl Strategy<Value = RoutingTable> {
    let row = (prop_oneof![Just("*".to_owned()), "gfx[0-9]{0,3}"], "[*]|llama|resnet", any_backend());
    prop::collection::vec(row, 0..4).prop_map(|rows| {
        let text: String = rows.iter().map(|(arch, model, backend)| format!("{arch} {model} {backend}\n")).collect();
        RoutingTable::parse(&text, Path::new("/")).unwrap()
    })
}

prop_compose! {
    fn any_query()(
        arch in any_arch(),
        driver in prop::sample::select(DriverKind::ALL.to_vec()),
        platform in prop::sample::select(Platform::ALL.to_vec()),
        model_arch in any_hint(),
        model_fw in any_hint(),
        profile in prop::sample::select(Profile::ALL.to_vec()),
        backend_library in prop::option::weighted(0.2, Just(PathBuf::from("/opt/x.so"))),
        overrides in any_table(),
        out in prop::collection::vec(any_backend(), 0..4),
    ) -> Owned {
        let ruled_out = out.into_iter().map(|backend| RuledOut { backend, reason: "broken".to_owned() }).collect();
        Owned { arch, driver, platform, model_arch, model_fw, profile, backend_library, overrides, ruled_out }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_query_gives_a_candidate_or_a_refusal_that_says_what_to_do(owned in any_query()) {
        match route(&owned.query()) {
            Ok(candidates) => {
                prop_assert!(!candidates.is_empty());
                prop_assert!(candidates.iter().all(|candidate| !candidate.reason.is_empty()));
            }
            Err(refusal) => prop_assert!(refusal.to_string().contains("\n  help: "), "{}", refusal),
        }
    }

    #[test]
    fn no_candidate_is_unusable_foreign_to_the_platform_or_named_twice(owned in any_query()) {
        let candidates = route(&owned.query()).unwrap_or_default();
        for (at, candidate) in candidates.iter().enumerate() {
            prop_assert!(owned.ruled_out.iter().all(|out| out.backend != candidate.backend));
            prop_assert!(candidate.backend != BackendName::DirectX || owned.platform == Platform::Windows);
            prop_assert!(candidates[..at].iter().all(|before| before.backend != candidate.backend));
        }
    }

    #[test]
    fn an_explicit_choice_is_never_replaced(owned in any_query()) {
        let query = owned.query();
        prop_assume!(query.is_explicit());
        if let Ok(candidates) = route(&query) {
            prop_assert_eq!(candidates.len(), 1);
            // Only the platform may change which backend a profile selects.
            let none = RoutingTable::default();
            let bare = Query { arch: "", driver: DriverKind::Amd, model_arch: None, model_fw: None, overrides: &none, ruled_out: &[], ..query };
            prop_assert_eq!(&candidates[0].backend, &route(&bare).unwrap()[0].backend);
        }
    }

    #[test]
    fn auto_refuses_only_when_all_it_would_try_is_known_to_be_unusable(owned in any_query()) {
        let auto = Query { profile: Profile::Auto, backend_library: None, ..owned.query() };
        let everything = route(&Query { ruled_out: &[], ..auto });
        prop_assert!(everything.is_ok());
        if route(&auto).is_err() {
            for candidate in everything.unwrap() {
                prop_assert!(owned.ruled_out.iter().any(|out| out.backend == candidate.backend));
            }
        }
    }

    #[test]
    fn ruling_a_backend_out_leaves_the_order_of_the_others(owned in any_query()) {
        let auto = Query { profile: Profile::Auto, backend_library: None, ..owned.query() };
        let all = route(&Query { ruled_out: &[], ..auto }).unwrap();
        let usable = |candidate: &Candidate| owned.ruled_out.iter().all(|out| out.backend != candidate.backend);
        let want: Vec<_> = all.into_iter().filter(usable).map(|candidate| candidate.backend).collect();
        let found: Vec<_> = route(&auto).unwrap_or_default().into_iter().map(|candidate| candidate.backend).collect();
        prop_assert_eq!(found, want);
    }
}
