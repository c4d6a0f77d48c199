//! Struct offsets from the running kernel's BTF.
//!
//! Reading vmlinux BTF takes tens of megabytes; it is done in a child of the same binary, so that
//! the agent never holds them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use btf_rs::{Btf, Type};
use rollrace_ebpf::layout::{
    CAST_TYPES, CT_WINDOW, CT_WINDOW_FIELDS, FIELDS, SKB_WINDOW, SKB_WINDOW_FIELDS,
};
use serde::{Deserialize, Serialize};

use super::{ProbeError, kernels};

/// Folder of the kernel's and its modules' BTF.
pub const BTF_FOLDER: &str = "/sys/kernel/btf";

/// Name of the hidden subcommand that prints a layout as JSON.
pub const SUBCOMMAND: &str = "kernel-layout";

/// What the programs must be told of this kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Global → value.
    pub globals: BTreeMap<String, u32>,
    /// Number → name of `enum skb_drop_reason`, without the prefix.
    pub drop_reasons: BTreeMap<u32, String>,
    /// Whether conntrack's types are there (built in, or its module is loaded).
    pub conntrack: bool,
    /// What plain loads of kernel memory need, since 6.2.
    pub casts: Option<Casts>,
}

/// BTF ids, with which the programs read kernel memory by plain loads instead of a helper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Casts {
    /// The kfunc `bpf_rdonly_cast`.
    pub kfunc: u32,
    /// Global → id of the type.
    pub types: BTreeMap<String, u32>,
}

impl Layout {
    /// Resolves the layout in a child process of this binary.
    ///
    /// # Errors
    /// What [`Layout::read`] says in the child; or that the child could not run.
    pub fn resolve() -> Result<Self, ProbeError> {
        let child = Command::new("/proc/self/exe").arg(SUBCOMMAND).output();
        let output = child.map_err(|error| ProbeError::Child(error.to_string()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(ProbeError::Child(text.trim().trim_start_matches("rollrace: ").to_owned()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| ProbeError::Child(error.to_string()))
    }

    /// Reads the layout from a folder of BTF files.
    ///
    /// # Errors
    /// If there is no BTF, or a field is missing, which is named.
    pub fn read(folder: &Path) -> Result<Self, ProbeError> {
        let path = folder.join("vmlinux");
        if !path.exists() {
            return Err(ProbeError::NoBtf { path });
        }
        let base = Btf::from_file(&path).map_err(|source| ProbeError::Btf { path, source })?;
        let module = folder.join("nf_conntrack");
        let split = if module.exists() {
            let btf = Btf::from_split_file(&module, &base);
            Some(btf.map_err(|source| ProbeError::Btf { path: module, source })?)
        } else {
            None
        };
        Self::from_btf(&base, split.as_ref())
    }

    fn from_btf(base: &Btf, conntrack: Option<&Btf>) -> Result<Self, ProbeError> {
        let nf = conntrack.unwrap_or(base);
        let mut layout =
            Self { conntrack: struct_named(nf, "nf_conn").is_some(), ..Self::default() };
        for field in FIELDS {
            if field.conntrack && !layout.conntrack {
                continue;
            }
            let btf = if field.conntrack { nf } else { base };
            let offset = offset_of(btf, field.container, field.member)?;
            layout.globals.insert(field.global.to_owned(), offset);
        }
        layout.window("sk_buff", SKB_WINDOW_FIELDS, "SKB_BASE", SKB_WINDOW)?;
        if layout.conntrack {
            layout.window("nf_conn", CT_WINDOW_FIELDS, "CT_BASE", CT_WINDOW)?;
            let stride =
                struct_named(nf, "nf_conntrack_tuple_hash").map_or(0, |found| found.size());
            layout.globals.insert("CT_STRIDE".to_owned(), u32::try_from(stride).unwrap_or(0));
        }
        let size_of_page = struct_named(base, "page").map_or(0, |found| found.size());
        layout.globals.insert("PAGE_STRUCT".to_owned(), u32::try_from(size_of_page).unwrap_or(0));
        for moved in &kernels::MOVED {
            layout.globals.insert(moved.global.to_owned(), kernels::offset_of(base, moved)?);
        }
        layout.casts = casts(base);
        layout.globals.insert("HAS_CONNTRACK".to_owned(), u32::from(layout.conntrack));
        layout.drop_reasons = drop_reasons(base);
        let number = |name: &str| {
            layout.drop_reasons.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
        };
        let mut numbers = Vec::new();
        for reason in &kernels::REASONS {
            let found = number(reason.name).or(reason.before);
            let found = found.ok_or_else(|| missing("skb_drop_reason", reason.name))?;
            numbers.push((reason.global.to_owned(), found));
        }
        layout.globals.extend(numbers);
        Ok(layout)
    }

    /// Makes the offsets of fields that one read takes relative to its begin.
    fn window(
        &mut self,
        container: &'static str,
        names: &[&str],
        base_name: &str,
        limit: usize,
    ) -> Result<(), ProbeError> {
        let field = |name: &str| FIELDS.iter().find(|field| field.global == name);
        let base = names.iter().map(|name| self.globals[*name]).min().unwrap_or(0) & !7;
        for name in names {
            let size = field(name).map_or(8, |field| field.size);
            let offset = self.globals[*name] - base;
            let span = offset + size;
            if span as usize > limit {
                return Err(ProbeError::TooFarApart { container, span, limit });
            }
            self.globals.insert((*name).to_owned(), offset);
        }
        self.globals.insert(base_name.to_owned(), base);
        Ok(())
    }

    /// The name of a drop reason.
    pub fn drop_reason(&self, number: u32) -> String {
        self.drop_reasons.get(&number).cloned().unwrap_or_else(|| format!("reason {number}"))
    }
}

/// Where BTF is looked for: `ROLLRACE_BTF` (for tests) or the kernel's own folder.
pub fn folder() -> PathBuf {
    std::env::var_os("ROLLRACE_BTF").map_or_else(|| BTF_FOLDER.into(), PathBuf::from)
}

fn missing(container: &str, member: &str) -> ProbeError {
    ProbeError::MissingField { container: container.to_owned(), member: member.to_owned() }
}

/// `None` if the kernel has no `bpf_rdonly_cast`, or does not know a type.
fn casts(base: &Btf) -> Option<Casts> {
    let id = |name: &str, is: fn(&Type) -> bool| {
        let ids = base.resolve_ids_by_name(name).ok()?;
        ids.into_iter().find(|id| base.resolve_type_by_id(*id).is_ok_and(|found| is(&found)))
    };
    let kfunc = id("bpf_rdonly_cast", |found| matches!(found, Type::Func(_)))?;
    let mut types = BTreeMap::new();
    for (global, name) in CAST_TYPES {
        let found = id(name, |found| matches!(found, Type::Struct(_)))?;
        types.insert((*global).to_owned(), found);
    }
    Some(Casts { kfunc, types })
}

fn struct_named(btf: &Btf, name: &str) -> Option<btf_rs::Struct> {
    btf.resolve_types_by_name(name).ok()?.into_iter().find_map(|found| match found {
        Type::Struct(found) => Some(found),
        _ => None,
    })
}

/// Offset in bytes of a member path, looking through anonymous structs and unions.
pub(super) fn offset_of(btf: &Btf, container: &str, path: &str) -> Result<u32, ProbeError> {
    let mut current = struct_named(btf, container).ok_or_else(|| missing(container, path))?;
    let mut offset = 0;
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        let (bits, member_type) =
            member(btf, &current, part).ok_or_else(|| missing(container, path))?;
        offset += bits / 8;
        if parts.peek().is_some() {
            current = as_struct(btf, member_type).ok_or_else(|| missing(container, path))?;
        }
    }
    Ok(offset)
}

/// Bit offset and type of a member, anonymous ones looked through.
fn member(btf: &Btf, container: &btf_rs::Struct, name: &str) -> Option<(u32, Type)> {
    for member in &container.members {
        let found = btf.resolve_chained_type(member).ok()?;
        let own = btf.resolve_name(member).unwrap_or_default();
        if own == name {
            return Some((member.bit_offset(), found));
        }
        if own.is_empty()
            && let Some(inner) = as_struct(btf, found)
            && let Some((bits, found)) = self::member(btf, &inner, name)
        {
            return Some((member.bit_offset() + bits, found));
        }
    }
    None
}

/// The struct or union behind typedefs and qualifiers.
fn as_struct(btf: &Btf, mut found: Type) -> Option<btf_rs::Struct> {
    loop {
        found = match found {
            Type::Struct(found) | Type::Union(found) => return Some(found),
            Type::Typedef(inner) => btf.resolve_chained_type(&inner).ok()?,
            Type::Volatile(inner) | Type::Const(inner) => btf.resolve_chained_type(&inner).ok()?,
            Type::TypeTag(inner) => btf.resolve_chained_type(&inner).ok()?,
            _ => return None,
        };
    }
}

fn drop_reasons(btf: &Btf) -> BTreeMap<u32, String> {
    let Ok(types) = btf.resolve_types_by_name("skb_drop_reason") else { return BTreeMap::new() };
    let mut reasons = BTreeMap::new();
    for found in types {
        if let Type::Enum(found) = found {
            for member in &found.members {
                let name = btf.resolve_name(member).unwrap_or_default();
                let short =
                    name.strip_prefix("SKB_DROP_REASON_").or_else(|| name.strip_prefix("SKB_"));
                reasons.insert(member.val(), short.unwrap_or(&name).to_owned());
            }
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_btf_is_told_by_name() {
        let error = Layout::read(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/vmlinux"), "{error}");
        assert!(error.to_string().contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
    }

    #[test]
    fn a_missing_field_is_named() {
        let btf = Btf::from_file(Path::new(BTF_FOLDER).join("vmlinux")).unwrap();
        let error = offset_of(&btf, "sk_buff", "no_such_field").unwrap_err();
        assert!(error.to_string().contains("sk_buff.no_such_field"), "{error}");
    }

    #[test]
    fn every_field_is_found_in_the_running_kernel() {
        let layout = Layout::read(Path::new(BTF_FOLDER)).unwrap();
        for field in FIELDS.iter().filter(|field| !field.conntrack || layout.conntrack) {
            assert!(layout.globals.contains_key(field.global), "{}", field.global);
        }
        assert_eq!(layout.drop_reason(layout.globals["REASON_NO_SOCKET"]), "NO_SOCKET");
        let protocol = layout.globals["SKB_BASE"] + layout.globals["SKB_PROTOCOL"];
        assert!(protocol > 0, "sk_buff.protocol sits in an anonymous member");
    }
}
