//! Which kernel struct fields the programs read. No offset is written down: each is resolved from
//! the running kernel's BTF and set as a read-only global before the programs load.

/// A field of a kernel struct and the global that takes its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the read-only global in the eBPF object.
    pub global: &'static str,
    /// Struct.
    pub container: &'static str,
    /// Path of members, dots between nested structs; anonymous members are looked through.
    pub member: &'static str,
    /// Size in bytes that the programs read.
    pub size: u32,
    /// Belongs to conntrack, which may be a module that is not loaded.
    pub conntrack: bool,
}

/// Calls the macro `$then` with every field, one definition for both sides of the boundary.
#[macro_export]
macro_rules! kernel_fields {
    ($then:ident) => {
        $then! {
            SKB_NFCT: "sk_buff" "_nfct" 8 false,
            SKB_HEAD: "sk_buff" "head" 8 false,
            SKB_PROTOCOL: "sk_buff" "protocol" 2 false,
            SKB_NETWORK: "sk_buff" "network_header" 2 false,
            SKB_DEV: "sk_buff" "dev" 8 false,
            SKB_SK: "sk_buff" "sk" 8 false,
            SKB_IIF: "sk_buff" "skb_iif" 4 false,
            SKB_TSTAMP: "sk_buff" "tstamp" 8 false,
            SKB_END: "sk_buff" "end" 4 false,
            SKB_DATA_LEN: "sk_buff" "data_len" 4 false,
            SKB_DST: "sk_buff" "_skb_refdst" 8 false,
            DST_DEV: "dst_entry" "dev" 8 false,
            DEV_NET: "net_device" "nd_net.net" 8 false,
            SK_PROTOCOL: "sock" "sk_protocol" 2 false,
            SK_ERR: "sock" "sk_err" 4 false,
            SKC_FAMILY: "sock_common" "skc_family" 2 false,
            SKC_NET: "sock_common" "skc_net.net" 8 false,
            SKC_DADDR: "sock_common" "skc_daddr" 4 false,
            SKC_RCV_SADDR: "sock_common" "skc_rcv_saddr" 4 false,
            SKC_DPORT: "sock_common" "skc_dport" 2 false,
            SKC_V6_DADDR: "sock_common" "skc_v6_daddr" 16 false,
            SKC_V6_RCV_SADDR: "sock_common" "skc_v6_rcv_saddr" 16 false,
            INET_SPORT: "inet_sock" "inet_sport" 2 false,
            TCP_SND_UNA: "tcp_sock" "snd_una" 4 false,
            TCP_RCV_NXT: "tcp_sock" "rcv_nxt" 4 false,
            SHARED_FRAGS: "skb_shared_info" "frags" 16 false,
            PAGE_HEAD: "page" "compound_head" 8 false,
            SLAB_CACHE: "slab" "slab_cache" 8 false,
            CACHE_NAME: "kmem_cache" "name" 8 false,
            TASK_NSPROXY: "task_struct" "nsproxy" 8 false,
            NSPROXY_NET: "nsproxy" "net_ns" 8 false,
            CT_TUPLES: "nf_conn" "tuplehash" 112 true,
            CT_STATUS: "nf_conn" "status" 8 true,
            CT_NET: "nf_conn" "ct_net.net" 8 true,
            CT_STATE: "nf_conn" "proto.tcp.state" 1 true,
            CT_TUPLE: "nf_conntrack_tuple_hash" "tuple" 40 true,
            TUPLE_SRC: "nf_conntrack_tuple" "src.u3" 16 true,
            TUPLE_SPORT: "nf_conntrack_tuple" "src.u" 2 true,
            TUPLE_L3NUM: "nf_conntrack_tuple" "src.l3num" 2 true,
            TUPLE_DST: "nf_conntrack_tuple" "dst.u3" 16 true,
            TUPLE_DPORT: "nf_conntrack_tuple" "dst.u" 2 true,
        }
    };
}

macro_rules! table {
    ($($global:ident: $container:literal $member:literal $size:literal $conntrack:literal),+ $(,)?) => {
        /// Every field the programs read.
        pub const FIELDS: &[Field] = &[$(Field {
            global: stringify!($global),
            container: $container,
            member: $member,
            size: $size,
            conntrack: $conntrack,
        }),+];
    };
}

kernel_fields!(table);

/// Calls the macro `$then` with every type that the programs cast kernel addresses to, and the global
/// that takes its BTF id.
#[macro_export]
macro_rules! cast_types {
    ($then:ident) => {
        $then! {
            SK_BUFF_ID: "sk_buff",
            IPHDR_ID: "iphdr",
            IPV6HDR_ID: "ipv6hdr",
            TCPHDR_ID: "tcphdr",
            WORDS_ID: "timespec64",
        }
    };
}

macro_rules! cast_table {
    ($($global:ident: $name:literal),+ $(,)?) => {
        /// Global and struct of every type that the programs cast to.
        pub const CAST_TYPES: &[(&str, &str)] = &[$((stringify!($global), $name)),+];
    };
}

cast_types!(cast_table);

/// Stands in the object for the number of the kfunc `bpf_rdonly_cast`; no helper's number.
pub const RDONLY_CAST: u32 = 0x7fff_0001;

/// Bytes of an skb that the first read takes, from the global `SKB_BASE`: one word above what its
/// fields span under any option of the kernel's so far. A word more costs half a nanosecond a
/// packet.
pub const SKB_WINDOW: usize = 40;

/// Bytes of a conntrack entry that one read takes, from the global `CT_BASE`.
pub const CT_WINDOW: usize = 144;

/// Fields that must lie within [`SKB_WINDOW`]; their globals are relative to `SKB_BASE`.
pub const SKB_WINDOW_FIELDS: &[&str] = &["SKB_HEAD", "SKB_PROTOCOL", "SKB_NETWORK"];

/// Fields that must lie within [`CT_WINDOW`]; their globals are relative to `CT_BASE`.
pub const CT_WINDOW_FIELDS: &[&str] = &["CT_TUPLES", "CT_STATUS", "CT_NET"];
