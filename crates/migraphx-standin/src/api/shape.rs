//! Shapes and arguments.

use std::ffi::{c_char, c_int, c_void};

use super::{api, list};
use crate::element::{Element, Shape};
use crate::handles::{Handle, free, give, of, put};

/// A shape and where its elements are.
pub struct Argument {
    /// The shape.
    pub shape: Shape,
    /// Where its elements are.
    pub address: *mut u8,
    /// The memory, if the argument owns it.
    pub own: Option<Vec<u64>>,
}

/// Several arguments.
pub struct Arguments(pub Vec<Argument>);

/// Several shapes.
pub struct Shapes(pub Vec<Shape>);

api! {
    fn migraphx_shape_create(out: *mut Handle, number: c_int, lengths: *const usize, count: usize) {
        let element = Element::from_number(number).ok_or_else(|| format!("bad parameter: type {number}"))?;
        give(out, Shape::packed(element, &list(lengths, count)))
    }

    fn migraphx_shape_destroy(shape: Handle) {
        free::<Shape>(shape)
    }

    fn migraphx_shape_lengths(out: *mut *const usize, count: *mut usize, shape: Handle) {
        let shape = of::<Shape>(shape)?;
        put(out, shape.lengths.as_ptr())?;
        put(count, shape.lengths.len())
    }

    fn migraphx_shape_strides(out: *mut *const usize, count: *mut usize, shape: Handle) {
        let shape = of::<Shape>(shape)?;
        put(out, shape.strides.as_ptr())?;
        put(count, shape.strides.len())
    }

    fn migraphx_shape_type(out: *mut c_int, shape: Handle) {
        let element = of::<Shape>(shape)?.element;
        put(out, element.number().ok_or_else(|| format!("type {} has no number", element.0))?)
    }

    fn migraphx_shape_bytes(out: *mut usize, shape: Handle) {
        put(out, of::<Shape>(shape)?.bytes().ok_or("a tuple has no bytes")?)
    }

    fn migraphx_shapes_destroy(shapes: Handle) {
        free::<Shapes>(shapes)
    }

    fn migraphx_shapes_size(out: *mut usize, shapes: Handle) {
        put(out, of::<Shapes>(shapes)?.0.len())
    }

    fn migraphx_shapes_get(out: *mut *const Shape, shapes: Handle, index: usize) {
        put(out, of::<Shapes>(shapes)?.0.get(index).ok_or("no such shape")?)
    }

    fn migraphx_argument_create(out: *mut Handle, shape: Handle, buffer: *mut c_void) {
        if buffer.is_null() {
            return Err("bad parameter: a null buffer".into());
        }
        give(out, Argument { shape: of::<Shape>(shape)?.clone(), address: buffer.cast(), own: None })
    }

    fn migraphx_argument_destroy(argument: Handle) {
        free::<Argument>(argument)
    }

    fn migraphx_argument_shape(out: *mut *const Shape, argument: Handle) {
        put(out, &of::<Argument>(argument)?.shape)
    }

    fn migraphx_argument_buffer(out: *mut *mut c_char, argument: Handle) {
        put(out, of::<Argument>(argument)?.address.cast())
    }

    fn migraphx_arguments_destroy(arguments: Handle) {
        free::<Arguments>(arguments)
    }

    fn migraphx_arguments_size(out: *mut usize, arguments: Handle) {
        put(out, of::<Arguments>(arguments)?.0.len())
    }

    fn migraphx_arguments_get(out: *mut *const Argument, arguments: Handle, index: usize) {
        put(out, of::<Arguments>(arguments)?.0.get(index).ok_or("no such argument")?)
    }
}
