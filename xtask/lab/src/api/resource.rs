//! The table of resources that the server serves: adding one is one line in [`RESOURCES`].

use std::fmt;

/// What a change must touch for `metadata.generation` to grow, as each type's own strategy in
/// Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The type has no generation (Services, Nodes, Namespaces, Events).
    None,
    /// A change of `spec`.
    Spec,
    /// A change of `spec` or of an annotation (Deployments).
    SpecAndAnnotations,
    /// A change of anything outside the metadata, or of a label (`EndpointSlices`).
    Content,
}

/// One kind of object.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version inside the group.
    pub version: &'static str,
    /// Plural name, as in the path.
    pub plural: &'static str,
    /// Kind of one object.
    pub kind: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether it has the `/status` subresource.
    pub status: bool,
    /// When the generation grows.
    pub generation: Generation,
    /// Field selectors beside `metadata.name` and `metadata.namespace`, as dotted paths.
    pub fields: &'static [&'static str],
    /// Defined by a `CustomResourceDefinition`: its list items carry their kind.
    pub custom: bool,
}

impl Resource {
    const fn new(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            plural,
            kind,
            namespaced: true,
            status: false,
            generation: Generation::None,
            fields: &[],
            custom: false,
        }
    }

    const fn cluster_wide(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    const fn fields(mut self, fields: &'static [&'static str]) -> Self {
        self.fields = fields;
        self
    }

    const fn custom(mut self) -> Self {
        self.custom = true;
        self
    }

    /// `apiVersion` of its objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The key of the resource among the others; two groups may share a plural.
    pub fn key(&self) -> (&'static str, &'static str) {
        (self.group, self.plural)
    }
}

/// `pods`, `deployments.apps`: the way Kubernetes names a resource in messages.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

use Generation::{Content, Spec, SpecAndAnnotations};

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "reason",
    "reportingController",
    "type",
];

/// Every resource of the server.
#[rustfmt::skip]
pub static RESOURCES: &[Resource] = &[
    Resource::new("", "v1", "namespaces", "Namespace").cluster_wide().with_status().fields(&["status.phase"]),
    Resource::new("", "v1", "nodes", "Node").cluster_wide().with_status().fields(&["spec.unschedulable"]),
    Resource::new("", "v1", "pods", "Pod").with_status().generation(Spec).fields(POD_FIELDS),
    Resource::new("", "v1", "services", "Service").with_status().fields(&["spec.clusterIP", "spec.type"]),
    Resource::new("", "v1", "events", "Event").fields(EVENT_FIELDS),
    Resource::new("events.k8s.io", "v1", "events", "Event").fields(&["reason", "type"]),
    Resource::new("apps", "v1", "deployments", "Deployment").with_status().generation(SpecAndAnnotations),
    Resource::new("apps", "v1", "replicasets", "ReplicaSet").with_status().generation(Spec).fields(&["status.replicas"]),
    Resource::new("apps", "v1", "statefulsets", "StatefulSet").with_status().generation(Spec),
    Resource::new("apps", "v1", "daemonsets", "DaemonSet").with_status().generation(Spec),
    Resource::new("apps", "v1", "controllerrevisions", "ControllerRevision"),
    Resource::new("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice").generation(Content),
    Resource::new("argoproj.io", "v1alpha1", "rollouts", "Rollout").with_status().generation(Spec).custom(),
];

/// The resource a path names, if it is served.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
}
