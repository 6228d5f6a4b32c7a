//! Pooling and its gradient.

use hipdnn::Resample;
use hipdnn::sys::ResampleMode;

use super::graph;
use crate::bench::{Answer, Bench, ExpectedOutput, Failure};
use crate::data::{Data, assert_close, flat, indices};
use crate::draw::Draw;
use crate::element::Element;

struct Case {
    what: Resample,
    mode: ResampleMode,
    dims: Vec<i64>,
    pooled: Vec<i64>,
    element: Element,
}

impl Case {
    fn draw(draw: &mut Draw) -> Self {
        let mode = draw.choose(ResampleMode::ALL);
        Self::of(mode, draw)
    }

    fn of(mode: ResampleMode, draw: &mut Draw) -> Self {
        let element = Element::draw(draw);
        let (batch, channels, axes) = (draw.int(1..3), draw.int(1..4), draw.int(1..4) as usize);
        let mut what = Resample::new(mode, &vec![1; axes]);
        let (mut dims, mut pooled) = (vec![batch, channels], vec![batch, channels]);
        for axis in 0..axes {
            let (window, stride) = (draw.int(1..4), draw.int(1..3));
            let (pre, post) = (draw.int(0..2).min(window - 1), draw.int(0..2).min(window - 1));
            let extent = window + draw.int(0..5);
            (what.window[axis], what.strides[axis]) = (window, stride);
            (what.pre_padding[axis], what.post_padding[axis]) = (pre, post);
            dims.push(extent);
            pooled.push((extent + pre + post - window) / stride + 1);
        }
        Self { what, mode, dims, pooled, element }
    }

    /// The positions in the data that a result covers.
    fn window_of(&self, index: &[i64]) -> Vec<Vec<i64>> {
        let what = &self.what;
        let place = |tap: &Vec<i64>| -> Vec<i64> {
            let at = |(axis, tap): (usize, &i64)| index[axis + 2] * what.strides[axis] + tap - what.pre_padding[axis];
            index[..2].iter().copied().chain(tap.iter().enumerate().map(at)).collect()
        };
        let inside = |place: &Vec<i64>| place.iter().zip(&self.dims).all(|(at, extent)| (0..*extent).contains(at));
        indices(&what.window).iter().map(place).filter(inside).collect()
    }

    fn divisor(&self, inside: usize) -> f64 {
        match self.mode {
            ResampleMode::AVGPOOL_INCLUDE_PADDING => self.what.window.iter().product::<i64>() as f64,
            _ => inside as f64,
        }
    }
}

pub fn forward(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let x = Data::random(case.element, &case.dims, draw).arranged(draw);
    let mut graph = graph(case.element);
    let xi = graph.tensor(x.tensor());
    let y = graph.resample(case.what.clone(), xi);
    let want = ExpectedOutput::arranged(y, case.element, draw);
    let found = bench.run_for(&mut graph, &[(xi, &x)], &[want])?;
    let pooled = |index: &Vec<i64>| {
        let values: Vec<f64> = case.window_of(index).iter().map(|place| x.at(place)).collect();
        match case.mode {
            ResampleMode::MAXPOOL => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => values.iter().sum::<f64>() / case.divisor(values.len()),
        }
    };
    let wanted: Vec<f64> = indices(&case.pooled).iter().map(pooled).collect();
    assert_close(&found[0], &wanted, case.element)
}

pub fn backward(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::draw(draw);
    let dy = Data::random(case.element, &case.pooled, draw).arranged(draw);
    let mut graph = graph(case.element);
    let dyi = graph.tensor(dy.tensor());
    let dx = graph.resample_backward(case.what.clone(), dyi, None, &case.dims);
    let outcome = bench.run(&mut graph, &[(dyi, &dy)], &[dx], case.element);
    if case.mode == ResampleMode::MAXPOOL {
        // Without the positions of the maxima this gradient does not exist.
        return match outcome {
            Err(Failure::NotSupported(_)) => Ok(()),
            other => Err(Failure::Wrong(format!("a gradient of maxima without their positions: {other:?}"))),
        };
    }
    let found = outcome?;
    let mut wanted = vec![0.0; case.dims.iter().product::<i64>() as usize];
    for index in indices(&case.pooled) {
        let places = case.window_of(&index);
        let share = dy.at(&index) / case.divisor(places.len());
        places.iter().for_each(|place| wanted[flat(&case.dims, place)] += share);
    }
    assert_close(&found[0], &wanted, case.element)
}

/// The position of each maximum in its window, and the gradient at that position.
pub fn places(bench: &Bench, draw: &mut Draw) -> Answer {
    let case = Case::of(ResampleMode::MAXPOOL, draw);
    let x = Data::random(case.element, &case.dims, draw).arranged(draw);
    let index = draw.choose(&[Element::I8, Element::I32]);
    let mut forward = graph(case.element);
    let xi = forward.tensor(x.tensor());
    let (y, places) = forward.resample_with_index(case.what.clone(), xi, index.code());
    let wants = [ExpectedOutput::new(y, case.element), ExpectedOutput::arranged(places, index, draw)];
    let found = bench.run_for(&mut forward, &[(xi, &x)], &wants)?;
    let mut sources = Vec::new();
    for (at, out) in indices(&case.pooled).iter().enumerate() {
        let taps = indices(&case.what.window);
        let place = found[1][at] as usize;
        let tap = taps.get(place).ok_or_else(|| Failure::Wrong(format!("position {place} is outside the window")))?;
        let along =
            |(axis, tap): (usize, &i64)| out[axis + 2] * case.what.strides[axis] + tap - case.what.pre_padding[axis];
        let source: Vec<i64> = out[..2].iter().copied().chain(tap.iter().enumerate().map(along)).collect();
        let most = case.window_of(out).iter().map(|place| x.at(place)).fold(f64::NEG_INFINITY, f64::max);
        let is_inside = source.iter().zip(&case.dims).all(|(at, extent)| (0..*extent).contains(at));
        if !is_inside || x.at(&source) != most || found[0][at] != most {
            return Err(Failure::Wrong(format!("result {at}: no maximum at {source:?}")));
        }
        sources.push(source);
    }
    let dy = Data::random(case.element, &case.pooled, draw).arranged(draw);
    let places = Data::new(index, &case.pooled, found[1].clone()).arranged(draw);
    let mut backward = graph(case.element);
    let [dyi, pi] = [&dy, &places].map(|data| backward.tensor(data.tensor()));
    let dx = backward.resample_backward(case.what.clone(), dyi, Some(pi), &case.dims);
    let want = ExpectedOutput::arranged(dx, case.element, draw);
    let found = bench.run_for(&mut backward, &[(dyi, &dy), (pi, &places)], &[want])?;
    let mut wanted = vec![0.0; x.values.len()];
    for (out, source) in indices(&case.pooled).iter().zip(&sources) {
        wanted[flat(&case.dims, source)] += dy.at(out);
    }
    assert_close(&found[0], &wanted, case.element)
}
