//! Tests which hipDNN graphs steps become.
use graph::expr::{Binary, Expr, Ref, Unary};
use graph::prim::{BufferId, Epilogue, MatMul, Pool, PoolKind, Product, ProductKind};
use graph::shape::dense_strides;
use graph::{DType, Prim, Scalar, Shape, Step, View};
use hipdnn::sys::PointwiseMode as M;

use super::*;

fn view(shape: &[usize]) -> View {
    let (shape, strides) = (Shape::from_slice(shape), dense_strides(shape));
    View { buffer: BufferId(0), dtype: DType::F32, shape, strides, offset: 0 }
}

/// A product with an epilogue over its result and one operand.
fn fused(write: impl FnOnce(&mut Expr, [Ref; 2]) -> Ref) -> Step {
    let mut epilogue = Expr::new();
    let inputs = [epilogue.input(0, DType::F32), epilogue.input(1, DType::F32)];
    let result = write(&mut epilogue, inputs);
    epilogue.finish(result);
    let product = Product::from(ProductKind::MatMul(MatMul { alpha: 1.0 }));
    let bias = View { strides: [0, 0, 1].as_slice().into(), ..view(&[2, 3, 5]) };
    Step {
        node: 0,
        prim: product.with_epilogue(Epilogue { operands: 2, dtype: DType::F32, expr: epilogue }).into(),
        inputs: vec![view(&[2, 3, 4]), view(&[2, 4, 5]), bias],
        outputs: vec![view(&[2, 3, 5])],
    }
}

/// The modes of the pointwise operations in a step's graph.
fn pointwise(step: &Step) -> Result<Vec<M>, Declined> {
    let text = format!("{:?}", operations::sketch(step)?.graph);
    let modes = text.split("Mode(POINTWISE_MODE, ").skip(1).map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        M(digits.parse().unwrap())
    });
    Ok(modes.collect())
}

fn number(expr: &mut Expr, value: f64) -> Ref {
    expr.constant(Scalar::Float(value), DType::F32)
}

#[test]
fn activations_are_recognised_by_name() {
    let relu = fused(|e, [x, bias]| {
        let (sum, zero) = (e.binary(Binary::Add, bias, x), number(e, 0.0));
        e.binary(Binary::Max, sum, zero)
    });
    assert_eq!(pointwise(&relu), Ok(vec![M::ADD, M::RELU_FWD]));
    for order in [[Binary::Max, Binary::Min], [Binary::Min, Binary::Max]] {
        let clip = fused(|e, [x, _]| {
            let bounds = order.map(|op| number(e, if op == Binary::Max { -1.0 } else { 6.0 }));
            let once = e.binary(order[0], x, bounds[0]);
            e.binary(order[1], once, bounds[1])
        });
        assert_eq!(pointwise(&clip), Ok(vec![M::RELU_FWD]), "{order:?}");
    }
    let leaky = fused(|e, [x, _]| {
        let (slope, zero) = (number(e, 0.1), number(e, 0.0));
        let (leak, below) = (e.binary(Binary::Mul, x, slope), e.binary(Binary::Lt, x, zero));
        e.select(below, leak, x)
    });
    assert_eq!(pointwise(&leaky), Ok(vec![M::RELU_FWD]));
    let swish = fused(|e, [x, _]| {
        let beta = number(e, 1.702);
        let inner = e.binary(Binary::Mul, x, beta);
        let gate = e.unary(Unary::Sigmoid, inner);
        e.binary(Binary::Mul, x, gate)
    });
    assert_eq!(pointwise(&swish), Ok(vec![M::SWISH_FWD]));
    let gelu = |factor: f64| {
        fused(move |e, [x, _]| {
            let (root, half, one) = (number(e, factor), number(e, 0.5), number(e, 1.0));
            let inner = e.binary(Binary::Mul, x, root);
            let erf = e.unary(Unary::Erf, inner);
            let (half, weight) = (e.binary(Binary::Mul, x, half), e.binary(Binary::Add, erf, one));
            e.binary(Binary::Mul, half, weight)
        })
    };
    assert_eq!(pointwise(&gelu(std::f64::consts::FRAC_1_SQRT_2)), Ok(vec![M::GELU_FWD]));
    assert_eq!(pointwise(&gelu(0.7)).map(|modes| modes.len()), Ok(5), "another factor is another function");
}

#[test]
fn unsupported_operations_are_declined_by_name() {
    let power = fused(|e, [x, bias]| e.binary(Binary::Pow, x, bias));
    assert_eq!(pointwise(&power), Err(Declined::new("its epilogue uses Pow, which hipDNN does not support")));
    let chosen = fused(|e, [x, bias]| {
        let greater = e.binary(Binary::Gt, x, bias);
        e.select(greater, x, bias)
    });
    assert_eq!(pointwise(&chosen), Err(Declined::new("its epilogue uses Select, which hipDNN does not support")));
    let cast = fused(|e, [x, _]| e.cast(x, DType::I32));
    assert_eq!(pointwise(&cast), Err(Declined::new("its epilogue computes in i32")));
}

#[test]
fn steps_that_differ_only_in_buffers_share_a_plan() {
    let step = fused(|e, [x, bias]| e.binary(Binary::Add, x, bias));
    let mut moved = step.clone();
    moved.node = 7;
    moved.inputs[0].buffer = BufferId(3);
    moved.outputs[0].offset = 64;
    assert!(signature(&step) == signature(&moved));
    moved.outputs[0].offset = 1;
    assert!(signature(&step) != signature(&moved), "it is aligned less");
    moved.outputs[0].offset = 0;
    moved.inputs[0].strides[0] = 24;
    assert!(signature(&step) != signature(&moved));
}

#[test]
fn sessions_on_a_device_share_the_library_and_its_plans() {
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
    let libraries = Libraries::default();
    let step = fused(|e, [x, bias]| e.binary(Binary::Add, x, bias));
    let mut moved = step.clone();
    moved.inputs[1].buffer = BufferId(9);
    let declined = fused(|e, [x, bias]| e.binary(Binary::Pow, x, bias));
    let [first, second] = [&step, &moved].map(|step| {
        let session = libraries.offering(&driver, Mode::On).unwrap();
        for _ in 0..2 {
            assert_eq!(
                session.offer(&declined).unwrap().err(),
                Some(Declined::new("its epilogue uses Pow, which hipDNN does not support"))
            );
        }
        session.offer(step).unwrap().unwrap()
    });
    assert!(Arc::ptr_eq(&first.built, &second.built) && Arc::ptr_eq(&first.dnn, &second.dnn));
    assert_eq!((first.engine(), first.workspace_bytes()), ("HOST_CPU_ENGINE", 0));
    assert_eq!(first.dnn.outcomes.lock().unwrap().len(), 2, "one plan and one reason");
    assert!(libraries.offering(&driver, Mode::Auto).is_none() && libraries.offering(&driver, Mode::Off).is_none());
}

#[test]
fn small_products_are_declined() {
    let small = fused(|e, [x, bias]| e.binary(Binary::Add, x, bias));
    assert_eq!(
        Offers::Worthwhile { tokens: None }.check(&small),
        Err(Declined::new("it is too small: 120 multiplications"))
    );
    assert_eq!(Offers::Everything.check(&small), Ok(()));
    let mut large = small;
    large.inputs[0].shape[2] = 1 << 20;
    assert_eq!(Offers::Worthwhile { tokens: None }.check(&large), Ok(()));
}

#[test]
fn plans_built_in_parallel_run_with_their_own_handles() {
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
    let libraries = Libraries::default();
    let session = libraries.offering(&driver, Mode::On).unwrap();
    let pool = |extent: usize| {
        let two = Shape::from_slice(&[2, 2]);
        let average = Pool {
            kind: PoolKind::Average { count_pad: false },
            kernel: two.clone(),
            strides: two,
            pads: [0, 0].as_slice().into(),
            pads_end: [0, 0].as_slice().into(),
            dilations: Shape::from_slice(&[1, 1]),
        };
        let (from, to) = (view(&[1, 2, 2 * extent, 4]), view(&[1, 2, extent, 2]));
        let to = View { buffer: BufferId(1), ..to };
        Step { node: 0, prim: Prim::Pool(average), inputs: vec![from], outputs: vec![to] }
    };
    let steps: Vec<Step> = (0..40).map(|at| pool(at % 20 + 1)).collect();
    session.make_ready(&steps);
    let made = session.library.as_ref().unwrap().outcomes.lock().unwrap().len();
    assert!(made == 20 || std::thread::available_parallelism().unwrap().get() == 1, "{made} plans");
    let stream = driver.stream().unwrap();
    for step in &steps {
        let extent = step.outputs[0].shape[2];
        let mut from: Vec<f32> = (0..extent * 16).map(|number| number as f32).collect();
        let mut to = vec![0.0f32; extent * 4];
        let taken = session.offer(step).unwrap().unwrap();
        crate::ffi::tests::run_dnn_step(&taken, &mut from, &mut to, &stream);
        for (at, found) in to.iter().enumerate() {
            let first = (at / 2 * 8 + at % 2 * 2) as f32;
            assert_eq!(*found, first + 2.5, "element {at} of {extent}");
        }
    }
    assert_eq!(session.library.as_ref().unwrap().outcomes.lock().unwrap().len(), 20, "twins share a plan");
}

#[test]
fn every_thread_has_its_own_handle() {
    let driver = hip::Driver::load(hip::DriverKind::Host).unwrap().devices().unwrap().remove(0);
    let session = Libraries::default().offering(&driver, Mode::On).unwrap();
    let dnn = session.library.as_ref().unwrap();
    let handles = [3, 1, 2, 0].map(|number| dnn.handle(number).unwrap());
    for (at, one) in handles.iter().enumerate() {
        assert!(handles[..at].iter().all(|other| !std::sync::Arc::ptr_eq(one, other)), "handle {at} is shared");
    }
}
