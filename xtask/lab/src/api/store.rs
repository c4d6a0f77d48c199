//! What the server keeps: the objects, one revision counter for all of them (as etcd has it), and a
//! bounded history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::Removal;
use super::failure::Failure;
use super::object;
use super::resource::Resource;

/// Where an object is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    resource: (&'static str, &'static str),
    /// Empty for cluster-wide resources.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn new(resource: &Resource, namespace: &str, name: &str) -> Self {
        Self { resource: resource.key(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It was written again.
    Modified,
    /// It is gone.
    Deleted,
}

/// One write, as the history keeps it.
#[derive(Debug)]
pub struct Change {
    /// The revision that the write made.
    pub revision: u64,
    /// Which object.
    pub key: Key,
    /// What happened.
    pub kind: ChangeKind,
    /// The object after the write; of a deletion its last state, with the deletion's own revision.
    pub object: Arc<Value>,
    /// The object before the write.
    pub before: Option<Arc<Value>>,
    /// When, on this process's clock: delays count from here.
    pub at: Instant,
}

/// Everything under one lock.
#[derive(Debug)]
pub struct State {
    revision: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Arc<Change>>,
    history_limit: usize,
    /// Watches from a revision below this one have missed something.
    oldest: u64,
    /// The truth about who removed which pod.
    pub removals: Vec<Removal>,
}

/// A copy of the objects, to start another server from.
#[derive(Debug, Clone)]
pub struct Snapshot {
    revision: u64,
    objects: BTreeMap<Key, Arc<Value>>,
}

impl State {
    /// An empty store, or one that goes on from a snapshot; its history begins now.
    pub fn new(history_limit: usize, from: Option<Snapshot>) -> Self {
        let Snapshot { revision, objects } =
            from.unwrap_or(Snapshot { revision: 1, objects: BTreeMap::new() });
        Self {
            revision,
            objects,
            history: VecDeque::new(),
            history_limit,
            oldest: revision,
            removals: Vec::new(),
        }
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A copy that another server can start from.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { revision: self.revision, objects: self.objects.clone() }
    }

    /// One object.
    pub fn get(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Value>, Failure> {
        self.objects
            .get(&Key::new(resource, namespace, name))
            .cloned()
            .ok_or_else(|| Failure::not_found(resource, name))
    }

    /// The objects of a resource, in the order of their keys; all namespaces when none is given.
    pub fn list<'a>(
        &'a self,
        resource: &'a Resource,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        self.objects.range(Key::new(resource, namespace.unwrap_or(""), "")..).take_while(
            move |(key, _)| {
                key.resource == resource.key()
                    && namespace.is_none_or(|wanted| key.namespace == wanted)
            },
        )
    }

    /// The objects of a resource as they were at a revision; refused when the history does not
    /// reach back to it.
    pub fn list_at(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<BTreeMap<Key, Arc<Value>>, Failure> {
        let mut objects: BTreeMap<Key, Arc<Value>> = self
            .list(resource, namespace)
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        for change in self.since(revision)?.rev() {
            if change.key.resource != resource.key()
                || namespace.is_some_and(|wanted| change.key.namespace != wanted)
            {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// The writes after a revision, oldest first; refused when the history does not reach back to
    /// it.
    pub fn since(
        &self,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Change>>, Failure> {
        if revision < self.oldest {
            return Err(Failure::expired(revision, self.oldest));
        }
        let first = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(first..))
    }

    /// Forgets the history, as etcd's compaction does: watches from before now get 410.
    pub fn compact(&mut self) {
        self.history.clear();
        self.oldest = self.revision;
    }

    /// Writes an object under a new revision.
    pub fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object::meta_mut(&mut object)
            .insert("resourceVersion".into(), self.revision.to_string().into());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.record(key, kind, Arc::clone(&object), before);
        object
    }

    /// Removes an object under a new revision and returns its last state.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.revision += 1;
        let mut last = Value::clone(&before);
        object::meta_mut(&mut last)
            .insert("resourceVersion".into(), self.revision.to_string().into());
        let last = Arc::new(last);
        self.record(key.clone(), ChangeKind::Deleted, Arc::clone(&last), Some(before));
        Some(last)
    }

    /// The keys of what names this UID as an owner.
    pub fn dependents(&self, owner_uid: &str) -> Vec<Key> {
        let owned = |object: &Value| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == owner_uid))
        };
        self.objects
            .iter()
            .filter(|(_, object)| owned(object))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn record(
        &mut self,
        key: Key,
        kind: ChangeKind,
        object: Arc<Value>,
        before: Option<Arc<Value>>,
    ) {
        if self.history.len() >= self.history_limit
            && let Some(dropped) = self.history.pop_front()
        {
            self.oldest = dropped.revision;
        }
        self.history.push_back(Arc::new(Change {
            revision: self.revision,
            key,
            kind,
            object,
            before,
            at: Instant::now(),
        }));
    }
}

impl Change {
    /// Whether it belongs to the resource, and to the namespace if one is given.
    pub fn concerns(&self, resource: &Resource, namespace: Option<&str>) -> bool {
        self.key.resource == resource.key()
            && namespace.is_none_or(|wanted| self.key.namespace == wanted)
    }
}

impl Key {
    /// The resource of the key.
    pub fn resource(&self) -> &'static Resource {
        super::resource::RESOURCES
            .iter()
            .find(|resource| resource.key() == self.resource)
            .expect("keys are only made from resources of the table")
    }
}
