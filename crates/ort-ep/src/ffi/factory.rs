//! [`OrtEpFactory`](sys::OrtEpFactory) over [`Factory`].
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{ptr, slice};

use ort_ep_sys as sys;

use super::allocator::{ServedMemory, release_allocator};
use super::control_flow::control_flow_kernels;
use super::data_transfer::data_transfer_into_raw;
use super::ep::{ep_into_raw, release_ep};
use super::foreign::{CustomOpDomain, ForeignAllocator};
use super::forward::forward_into_raw;
use super::guard::{Border, guard};
use super::kernel::{KernelRegistry, copy_kernels};
use super::life::{Life, pin_this_library};
use super::memory_info::MemoryInfo;
use super::offer::{EpDevices, NewHardwareDevice};
use super::runtime::{c_string, text};
use super::stream::stream_into_raw;
use crate::view::{HardwareDevice, KeyValues, OwnedKeyValues, SessionOptions};
use crate::{
    AllocatorHandle, Environment, EpRequest, Error, Factory, IncompatibilityReason, MemoryDevice, ModelCompatibility,
    NewEp, Result, Runtime, SelectedDevice,
};

/// What must outlive everything the factory hands out, even if ONNX Runtime releases the factory first.
#[derive(Default)]
pub(super) struct FactoryState {
    pub life: Life,
    pub infos: Mutex<Vec<Arc<MemoryInfo>>>,
    pub hardware: Mutex<Vec<NewHardwareDevice>>,
    /// Allocators that other plugins created for our sessions, by address: ONNX Runtime releases them through us.
    foreign_allocators: Mutex<HashMap<usize, ForeignAllocator>>,
}

impl FactoryState {
    /// The info of an offered memory.
    pub fn info(&self, memory: MemoryDevice) -> Option<Arc<MemoryInfo>> {
        let infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner);
        infos.iter().find(|info| info.memory() == memory).cloned()
    }

    /// The info of the memory that a session requests an allocator for. If another plugin offered that memory, a copy
    /// is kept.
    ///
    /// # Safety
    /// `raw` is alive for the call.
    pub unsafe fn session_info(&self, runtime: Runtime, raw: *const sys::OrtMemoryInfo) -> Result<Arc<MemoryInfo>> {
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { MemoryDevice::of_info(runtime, raw) };
        if let Some(known) = self.info(memory) {
            return Ok(known);
        }
        // SAFETY: as above.
        let copy = Arc::new(unsafe { MemoryInfo::copy_of(runtime, raw)? });
        self.infos.lock().unwrap_or_else(PoisonError::into_inner).push(copy.clone());
        Ok(copy)
    }

    pub fn foreign_allocators(&self) -> MutexGuard<'_, HashMap<usize, ForeignAllocator>> {
        self.foreign_allocators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The info of an offered memory, or an error if it was never offered.
    pub fn offered(&self, memory: MemoryDevice) -> Result<Arc<MemoryInfo>> {
        self.info(memory).ok_or_else(|| {
            Error::invalid_argument(format!("an allocator was requested for memory that was never offered: {memory:?}"))
        })
    }
}

#[repr(C)]
pub(super) struct FactoryBox {
    raw: sys::OrtEpFactory,
    inner: Box<dyn Factory>,
    name: CString,
    vendor: CString,
    version: CString,
    border: Border,
    registry: Mutex<Option<Arc<KernelRegistry>>>,
    /// A session was requested, so registration is over.
    is_registered: AtomicBool,
    state: Arc<FactoryState>,
}

const _: () = assert!(std::mem::offset_of!(FactoryBox, raw) == 0);

/// Creates the C object.
pub(super) fn factory_into_raw(inner: Box<dyn Factory>, name: &str, border: Border) -> *mut sys::OrtEpFactory {
    let mut raw = sys::OrtEpFactory::empty(border.runtime.api_version());
    raw.GetName = Some(get_name);
    raw.GetVendor = Some(get_vendor);
    raw.GetVendorId = Some(get_vendor_id);
    raw.GetVersion = Some(get_version);
    raw.GetSupportedDevices = Some(get_supported_devices);
    raw.CreateEp = Some(create_ep);
    raw.ReleaseEp = Some(factory_release_ep);
    raw.CreateAllocator = Some(create_allocator);
    raw.ReleaseAllocator = Some(factory_release_allocator);
    raw.CreateDataTransfer = Some(create_data_transfer);
    raw.IsStreamAware = Some(is_stream_aware);
    raw.CreateSyncStreamForDevice = Some(create_stream);
    raw.ValidateCompiledModelCompatibilityInfo = Some(validate_compatibility);
    raw.GetHardwareDeviceIncompatibilityDetails = Some(get_incompatibility);
    raw.GetNumCustomOpDomains = Some(get_num_custom_op_domains);
    raw.GetCustomOpDomains = Some(get_custom_op_domains);
    let (vendor, version) = (c_string(inner.vendor()), c_string(inner.version()));
    let factory = FactoryBox {
        raw,
        inner,
        name: c_string(name),
        vendor,
        version,
        border,
        registry: Mutex::default(),
        is_registered: AtomicBool::new(false),
        state: Arc::default(),
    };
    border.logger.adopt();
    Box::into_raw(Box::new(factory)).cast()
}

/// Releases the factory. If objects it created are still alive, it is leaked together with the code they run.
///
/// # Safety
/// `this` is null, or came from `factory_into_raw` and was not released before.
pub(super) unsafe fn release(this: *mut sys::OrtEpFactory) {
    if this.is_null() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let (border, alive) = unsafe { (of(this).border, of(this).state.life.alive()) };
    border.logger.disown();
    if alive > 0 {
        let _scope = border.logger.enter();
        tracing::warn!(
            target: "ort_ep::lifetime", alive,
            "the library was unregistered while its sessions or tensors are alive: it stays loaded for them"
        );
        pin_this_library();
        return;
    }
    // SAFETY: as above, and nothing made by the factory is alive.
    let factory = unsafe { Box::from_raw(this.cast::<FactoryBox>()) };
    border.value("ReleaseEpFactory", (), move || {
        drop(factory);
        Ok(())
    });
}

/// The box behind a pointer that ONNX Runtime passes back.
///
/// # Safety
/// `this` came from `factory_into_raw` and is alive.
unsafe fn of<'a>(this: *const sys::OrtEpFactory) -> &'a FactoryBox {
    // SAFETY: guaranteed by the caller; the table is the box's first field.
    unsafe { &*this.cast() }
}

impl FactoryBox {
    /// Handles an error in a hook that ONNX Runtime calls while it registers the library.
    ///
    /// Up to 1.30, ONNX Runtime keeps the devices on its list when allocators or data transfers cannot be created, and
    /// crashes the next time it uses them. On these versions the error is logged instead, and reported again to
    /// whatever needs the missing part.
    fn registering<T>(&self, result: Result<T>, stand_in: impl FnOnce(Error) -> T) -> Result<T> {
        const FIRST_THAT_ROLLS_BACK: u32 = 31;
        let is_over = self.is_registered.load(Ordering::Relaxed);
        result.or_else(|error| {
            if is_over || self.border.runtime.api_version() >= FIRST_THAT_ROLLS_BACK {
                return Err(error);
            }
            tracing::error!(target: "ort_ep::load", %error, "registered without a missing part of the plugin");
            Ok(stand_in(error))
        })
    }

    /// The kernels of the library: created once, kept as long as the factory or an execution provider.
    fn registry(&self) -> Result<Option<Arc<KernelRegistry>>> {
        let mut slot = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let mut kernels = self.inner.kernels();
            // A plugin without memory of its own registers none: if it is a backend of another plugin, that one does.
            if let Some(transfer) = self.inner.create_data_transfer()? {
                let transfer = transfer.into();
                kernels.extend(copy_kernels(&transfer));
                kernels.extend(control_flow_kernels(&transfer));
            }
            if !kernels.is_empty() {
                *slot = Some(Arc::new(KernelRegistry::new(self.border, &self.name, &kernels)?));
            }
        }
        Ok(slot.clone())
    }

    fn environment(&self) -> Result<Environment> {
        let runtime = self.border.runtime;
        let mut raw = ptr::null_mut();
        // SAFETY: a valid out-pointer; the pairs are ours.
        let status = unsafe { runtime.ep_api.GetEnvConfigEntries(&mut raw) };
        runtime.check("GetEnvConfigEntries", status)?;
        // SAFETY: as above.
        let pairs = unsafe { OwnedKeyValues::from_raw(runtime, raw) };
        Ok(Environment { entries: pairs.as_view().to_map() })
    }
}

/// The hardware devices in an array of the runtime.
///
/// # Safety
/// `devices` holds `count` devices that are alive for `'a`.
unsafe fn hardware<'a>(
    runtime: Runtime,
    devices: *const *const sys::OrtHardwareDevice,
    count: usize,
) -> Vec<HardwareDevice<'a>> {
    if devices.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        slice::from_raw_parts(devices, count).iter().map(|&device| HardwareDevice::from_raw(runtime, device)).collect()
    }
}

unsafe extern "system" fn get_name(this: *const sys::OrtEpFactory) -> *const c_char {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.name.as_ptr()
}

unsafe extern "system" fn get_vendor(this: *const sys::OrtEpFactory) -> *const c_char {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.vendor.as_ptr()
}

unsafe extern "system" fn get_version(this: *const sys::OrtEpFactory) -> *const c_char {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    unsafe { of(this) }.version.as_ptr()
}

unsafe extern "system" fn get_vendor_id(this: *const sys::OrtEpFactory) -> u32 {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.value("GetVendorId", 0, || Ok(this.inner.vendor_id()))
}

unsafe extern "system" fn is_stream_aware(this: *const sys::OrtEpFactory) -> bool {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.value("IsStreamAware", false, || Ok(this.inner.is_stream_aware()))
}

unsafe extern "system" fn get_supported_devices(
    this: *mut sys::OrtEpFactory,
    devices: *const *const sys::OrtHardwareDevice,
    num_devices: usize,
    ep_devices: *mut *mut sys::OrtEpDevice,
    max_ep_devices: usize,
    num_ep_devices: *mut usize,
) -> sys::Status {
    let factory = this;
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.status("GetSupportedDevices", || {
        // SAFETY: a valid out-pointer.
        unsafe { num_ep_devices.write(0) };
        // SAFETY: the array holds that many devices, alive as long as the environment.
        let listed = unsafe { hardware(this.border.runtime, devices, num_devices) };
        let mut offers = this.inner.devices(&listed, &this.environment()?)?;
        if offers.len() > max_ep_devices {
            let found = offers.len();
            tracing::warn!(target: "ort_ep::load", found, "ONNX Runtime accepts {max_ep_devices} devices: the others are dropped");
            offers.truncate(max_ep_devices);
        }
        let mut made = EpDevices::new(this.border.runtime, factory);
        for offer in offers {
            made.add(offer, &this.state)?;
        }
        for (index, device) in made.into_raw().into_iter().enumerate() {
            // SAFETY: the array has room for `max_ep_devices`; ONNX Runtime owns what is written.
            unsafe {
                ep_devices.add(index).write(device);
                num_ep_devices.write(index + 1);
            }
        }
        Ok(())
    })
}

unsafe extern "system" fn create_ep(
    this: *mut sys::OrtEpFactory,
    devices: *const *const sys::OrtHardwareDevice,
    metadata: *const *const sys::OrtKeyValuePairs,
    num_devices: usize,
    options: *const sys::OrtSessionOptions,
    logger: *const sys::OrtLogger,
    ep: *mut *mut sys::OrtEp,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given; everything else is alive for the call, the logger for the
    // session's life.
    let this = unsafe { of(this) };
    let runtime = this.border.runtime;
    let raw_logger = logger;
    // SAFETY: as above.
    let logger = unsafe { super::logging::LoggerHandle::new(runtime, logger) };
    let border = this.border.for_session(logger);
    this.is_registered.store(true, Ordering::Relaxed);
    border.status("CreateEp", || {
        // SAFETY: a valid out-pointer.
        unsafe { ep.write(ptr::null_mut()) };
        // SAFETY: as above; both arrays hold `num_devices` entries.
        let devices = unsafe { hardware(runtime, devices, num_devices) }
            .into_iter()
            .enumerate()
            .map(|(index, hardware)| {
                // SAFETY: as above.
                let pairs = if metadata.is_null() { ptr::null() } else { unsafe { *metadata.add(index) } };
                // SAFETY: as above; null reads as no metadata.
                SelectedDevice { hardware, metadata: unsafe { KeyValues::from_raw(runtime, pairs) } }
            })
            .collect();
        // SAFETY: as above.
        let options = unsafe { SessionOptions::from_raw(runtime, options) };
        let request = EpRequest { name: &this.name, devices, options, runtime, logger: raw_logger };
        let new = this.inner.create_ep(&request)?;
        let (registry, state) = (this.registry()?, this.state.clone());
        let made = match new {
            NewEp::Own(inner) => ep_into_raw(inner, &this.name, border, state, registry),
            NewEp::Forwarded(forwarded) => forward_into_raw(forwarded, &this.name, border, state, registry),
        };
        // SAFETY: a valid out-pointer; `ReleaseEp` releases it.
        unsafe { ep.write(made) };
        Ok(())
    })
}

unsafe extern "system" fn factory_release_ep(_: *mut sys::OrtEpFactory, ep: *mut sys::OrtEp) {
    // SAFETY: ONNX Runtime passes back what `create_ep` gave, once.
    unsafe { release_ep(ep) }
}

unsafe extern "system" fn create_allocator(
    this: *mut sys::OrtEpFactory,
    info: *const sys::OrtMemoryInfo,
    options: *const sys::OrtKeyValuePairs,
    out: *mut *mut sys::OrtAllocator,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and objects that are alive for the call.
    let this = unsafe { of(this) };
    let runtime = this.border.runtime;
    this.border.status("CreateAllocator", || {
        // SAFETY: as above.
        let (memory, options) =
            unsafe { (MemoryDevice::of_info(runtime, info), KeyValues::from_raw(runtime, options)) };
        let info = this.state.offered(memory)?.as_ptr();
        let allocator = guard("CreateAllocator", || this.inner.create_allocator(memory, options));
        let allocator = this.registering(allocator, AllocatorHandle::refusing)?;
        let served = ServedMemory { border: this.border, memory, info, _token: this.state.life.token() };
        // SAFETY: a valid out-pointer; `ReleaseAllocator` releases it.
        unsafe { out.write(allocator.into_raw(served)) };
        Ok(())
    })
}

unsafe extern "system" fn factory_release_allocator(this: *mut sys::OrtEpFactory, allocator: *mut sys::OrtAllocator) {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    let foreign = this.state.foreign_allocators().remove(&(allocator as usize));
    match foreign {
        Some(foreign) => this.border.value("ReleaseAllocator", (), move || {
            drop(foreign);
            Ok(())
        }),
        // SAFETY: ONNX Runtime passes back what one of our `CreateAllocator` hooks gave, once, and it is one of ours.
        None => unsafe { release_allocator(allocator) },
    }
}

unsafe extern "system" fn create_data_transfer(
    this: *mut sys::OrtEpFactory,
    out: *mut *mut sys::OrtDataTransferImpl,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.status("CreateDataTransfer", || {
        let transfer = guard("CreateDataTransfer", || this.inner.create_data_transfer());
        let transfer = this.registering(transfer, |_| None)?;
        let raw = transfer.map(|transfer| data_transfer_into_raw(transfer, this.border, this.state.life.token()));
        // SAFETY: a valid out-pointer; null means that no copies are needed.
        unsafe { out.write(raw.unwrap_or(ptr::null_mut())) };
        Ok(())
    })
}

unsafe extern "system" fn create_stream(
    this: *mut sys::OrtEpFactory,
    device: *const sys::OrtMemoryDevice,
    options: *const sys::OrtKeyValuePairs,
    out: *mut *mut sys::OrtSyncStreamImpl,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and objects that are alive for the call.
    let this = unsafe { of(this) };
    let runtime = this.border.runtime;
    this.border.status("CreateSyncStreamForDevice", || {
        // SAFETY: as above.
        let (device, options) =
            unsafe { (MemoryDevice::from_raw(runtime, device), KeyValues::from_raw(runtime, options)) };
        let stream = this.inner.create_stream(device, options)?;
        // SAFETY: a valid out-pointer; ONNX Runtime releases the stream.
        unsafe { out.write(stream_into_raw(stream, this.border, this.state.life.token())) };
        Ok(())
    })
}

unsafe extern "system" fn validate_compatibility(
    this: *mut sys::OrtEpFactory,
    devices: *const *const sys::OrtHardwareDevice,
    num_devices: usize,
    info: *const c_char,
    out: *mut sys::OrtCompiledModelCompatibility,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and objects that are alive for the call.
    let this = unsafe { of(this) };
    this.border.status("ValidateCompiledModelCompatibilityInfo", || {
        // SAFETY: as above.
        let (devices, info) = unsafe { (hardware(this.border.runtime, devices, num_devices), text(info)) };
        let answer = match this.inner.model_compatibility(&devices, &info)? {
            ModelCompatibility::NotApplicable => sys::ORT_COMPILED_NOT_APPLICABLE,
            ModelCompatibility::Optimal => sys::ORT_COMPILED_OPTIMAL,
            ModelCompatibility::PreferRecompilation => sys::ORT_COMPILED_PREFER_RECOMPILATION,
            ModelCompatibility::Unsupported => sys::ORT_COMPILED_UNSUPPORTED,
        };
        // SAFETY: a valid out-pointer.
        unsafe { out.write(answer) };
        Ok(())
    })
}

unsafe extern "system" fn get_num_custom_op_domains(this: *mut sys::OrtEpFactory, out: *mut usize) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and a valid out-pointer.
    let this = unsafe { of(this) };
    this.border.status("GetNumCustomOpDomains", || {
        // SAFETY: as above.
        unsafe { out.write(this.inner.custom_op_domains().len()) };
        Ok(())
    })
}

unsafe extern "system" fn get_custom_op_domains(
    this: *mut sys::OrtEpFactory,
    out: *mut *mut sys::OrtCustomOpDomain,
    count: usize,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given.
    let this = unsafe { of(this) };
    this.border.status("GetCustomOpDomains", || {
        let domains: Vec<CustomOpDomain> = this.inner.custom_op_domains();
        if domains.len() < count {
            let found = domains.len();
            return Err(Error::fail(format!("there are {found} custom-op domains, but {count} were requested")));
        }
        for (index, domain) in domains.iter().take(count).enumerate() {
            // SAFETY: the array has room for `count` entries.
            unsafe { out.add(index).write(domain.as_ptr()) };
        }
        Ok(())
    })
}

unsafe extern "system" fn get_incompatibility(
    this: *mut sys::OrtEpFactory,
    device: *const sys::OrtHardwareDevice,
    details: *mut sys::OrtDeviceEpIncompatibilityDetails,
) -> sys::Status {
    // SAFETY: ONNX Runtime passes the pointer it was given and objects that are alive for the call.
    let this = unsafe { of(this) };
    let runtime = this.border.runtime;
    this.border.status("GetHardwareDeviceIncompatibilityDetails", || {
        // SAFETY: as above.
        let device = unsafe { HardwareDevice::from_raw(runtime, device) };
        let Some(found) = this.inner.incompatibility(device) else { return Ok(()) };
        let reason = match found.reason {
            IncompatibilityReason::Driver => sys::ORT_INCOMPATIBLE_DRIVER,
            IncompatibilityReason::Device => sys::ORT_INCOMPATIBLE_DEVICE,
            IncompatibilityReason::MissingDependency => sys::ORT_INCOMPATIBLE_MISSING_DEPENDENCY,
        };
        let notes = c_string(&found.notes);
        // SAFETY: the details are alive for the call and the notes are copied.
        let status = unsafe {
            runtime.ep_api.DeviceEpIncompatibilityDetails_SetDetails(details, reason, found.error_code, notes.as_ptr())
        };
        runtime.check("DeviceEpIncompatibilityDetails_SetDetails", status)
    })
}
