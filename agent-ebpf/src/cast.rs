//! Plain loads of kernel memory: with `bpf_rdonly_cast` (since 6.2, for every type of program) the
//! verifier takes an address for a pointer to a type of vmlinux BTF. A load of a member then costs
//! what it costs in the kernel, far less than a call of the helper `bpf_probe_read_kernel`. A load from an address
//! that is not there yields 0.
//!
//! The object calls the kfunc by [`RDONLY_CAST`], a number that no helper has; the loader writes the
//! kernel's own number there. Where the kfunc is missing the ids below are 0, the verifier drops the
//! calls as dead code, and the helper does the work.

use aya_ebpf::Global;
use rollrace_ebpf::layout::RDONLY_CAST;

macro_rules! globals {
    ($($global:ident: $name:literal),+ $(,)?) => {
        $(
            #[doc = concat!("BTF id of `struct ", $name, "`; 0 without `bpf_rdonly_cast`.")]
            #[unsafe(no_mangle)]
            pub static $global: Global<u32> = Global::new(0);
        )+
    };
}

rollrace_ebpf::cast_types!(globals);

/// A kernel address as a pointer to a type of the kernel's.
#[derive(Clone, Copy)]
pub struct Typed(*const u8);

/// Takes `address` for a pointer to the type; `None` where that cannot be done.
#[inline(always)]
pub fn cast(address: u64, id: &Global<u32>) -> Option<Typed> {
    let id = id.load();
    if id == 0 {
        return None;
    }
    // SAFETY: the loader has put the kfunc there: `void *bpf_rdonly_cast(const void *, u32)`.
    let cast: extern "C" fn(u64, u32) -> *const u8 =
        unsafe { core::mem::transmute(RDONLY_CAST as usize) };
    Some(Typed(cast(address, id)))
}

impl Typed {
    /// A scalar member at this offset.
    #[inline(always)]
    pub fn load<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the verifier checks the member and makes the load one that may fault. Volatile, so
        // that it stays one load of this member.
        unsafe { self.0.add(offset as usize).cast::<T>().read_volatile() }
    }
}
