//! Which metrics and labels a query names.

use std::collections::BTreeSet;

use anyhow::anyhow;
use promql_parser::{
    label::Matchers,
    parser::{self, Expr, LabelModifier, VectorSelector},
};

/// A metric that a query selects, and the labels that it selects by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selected {
    /// The metric.
    pub metric: String,
    /// Labels of its matchers.
    pub labels: BTreeSet<String>,
}

/// What a query names.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Its selectors.
    pub selected: Vec<Selected>,
    /// Labels that it groups and joins by.
    pub grouped: BTreeSet<String>,
}

impl Named {
    /// Reads a query, its variables replaced.
    ///
    /// # Errors
    /// If it is none.
    pub fn of(query: &str) -> anyhow::Result<Self> {
        let expression =
            parser::parse(query).map_err(|error| anyhow!("not a query: {error}\n{query}"))?;
        let mut named = Self::default();
        named.walk(&expression);
        Ok(named)
    }

    fn walk(&mut self, expression: &Expr) {
        match expression {
            Expr::Aggregate(aggregate) => {
                if let Some(LabelModifier::Include(labels)) = &aggregate.modifier {
                    self.grouped.extend(labels.labels.iter().cloned());
                }
                self.walk(&aggregate.expr);
                if let Some(parameter) = &aggregate.param {
                    self.walk(parameter);
                }
            }
            Expr::Binary(binary) => {
                if let Some(modifier) = &binary.modifier
                    && let Some(LabelModifier::Include(labels)) = &modifier.matching
                {
                    self.grouped.extend(labels.labels.iter().cloned());
                }
                self.walk(&binary.lhs);
                self.walk(&binary.rhs);
            }
            Expr::Unary(unary) => self.walk(&unary.expr),
            Expr::Paren(paren) => self.walk(&paren.expr),
            Expr::Subquery(subquery) => self.walk(&subquery.expr),
            Expr::Call(call) => call.args.args.iter().for_each(|argument| self.walk(argument)),
            Expr::VectorSelector(selector) => self.select(selector),
            Expr::MatrixSelector(selector) => self.select(&selector.vs),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }

    fn select(&mut self, selector: &VectorSelector) {
        let Matchers { matchers, .. } = &selector.matchers;
        let labels = matchers.iter().map(|matcher| matcher.name.clone());
        self.selected.push(Selected {
            metric: selector.name.clone().unwrap_or_default(),
            labels: labels.filter(|label| label != "__name__").collect(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_and_labels_of_a_query_are_found_however_deep_they_are() {
        let query = r#"sum by (node) (increase(a_total{cluster=~".*"}[5m]) or b) / on (job) c"#;
        let named = Named::of(query).unwrap();
        let metrics: Vec<&str> = named.selected.iter().map(|one| one.metric.as_str()).collect();
        assert_eq!(metrics, ["a_total", "b", "c"]);
        assert!(named.selected[0].labels.contains("cluster"));
        assert_eq!(named.grouped.iter().collect::<Vec<_>>(), ["job", "node"]);
        assert!(Named::of("sum by (").is_err());
    }
}
