//! What was asked a moment ago is not asked again.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use kube::core::ApiResource;
use tokio::{sync::Mutex, time::Instant};

use super::{Answer, Question};
use crate::cluster::{
    ask::{Ask, Unanswered},
    object::Facts,
};

/// How long a namespace's list is good for: the pods of one rollout step ask together.
pub(super) const LIST_AGE: Duration = Duration::from_secs(10);
/// A list this young is not asked for again though it lacks what was looked for.
pub(super) const LIST_FRESH: Duration = Duration::from_secs(1);
/// Namespaces whose lists are kept.
const LISTS: usize = 64;
/// How long an answer is good for.
const ANSWER_AGE: Duration = Duration::from_secs(60);
/// Answers that are kept.
const ANSWERS: usize = 1024;

/// The lists of one kind by namespace, for a short while.
pub(super) struct Lists<F> {
    pub(super) resource: ApiResource,
    kept: Mutex<HashMap<Arc<str>, Kept<F>>>,
}

struct Kept<F> {
    at: Instant,
    list: Vec<Arc<F>>,
}

impl<F: Facts> Lists<F> {
    pub(super) fn new(resource: ApiResource) -> Self {
        Self { resource, kept: Mutex::default() }
    }

    /// The list of a namespace, at most `age` old. Held for the time of the request, so that those
    /// who ask at the same time share it.
    pub(super) async fn get(
        &self,
        ask: &Ask,
        namespace: &Arc<str>,
        age: Duration,
    ) -> Result<Vec<Arc<F>>, Unanswered> {
        let mut kept = self.kept.lock().await;
        if let Some(entry) = kept.get(namespace)
            && entry.at.elapsed() < age
        {
            return Ok(entry.list.clone());
        }
        let list = ask.list(&self.resource, namespace, None).await?;
        kept.retain(|_, entry| entry.at.elapsed() < LIST_AGE);
        if kept.len() < LISTS {
            kept.insert(namespace.clone(), Kept { at: Instant::now(), list: list.clone() });
        }
        Ok(list)
    }
}

#[derive(Default)]
pub(super) struct Answers {
    by_question: HashMap<Question, (Instant, Answer)>,
    order: VecDeque<Question>,
}

impl Answers {
    pub(super) fn get(&self, question: &Question) -> Option<Answer> {
        let (at, answer) = self.by_question.get(question)?;
        (at.elapsed() < ANSWER_AGE).then(|| answer.clone())
    }

    pub(super) fn keep(&mut self, question: Question, answer: Answer) {
        if self.by_question.insert(question.clone(), (Instant::now(), answer)).is_none() {
            self.order.push_back(question);
        }
        while self.order.len() > ANSWERS {
            if let Some(oldest) = self.order.pop_front() {
                self.by_question.remove(&oldest);
            }
        }
    }
}
