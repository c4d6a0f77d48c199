//! How many replicas a rolling update may add and take away.

use k8s_openapi::api::apps::v1::{Deployment, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Surge and unavailability in replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Replicas above the wanted number.
    pub surge: i32,
    /// Replicas below it that may be missing.
    pub unavailable: i32,
}

impl Bounds {
    /// Of a Deployment; a Recreate strategy has neither.
    pub fn of(deployment: &Deployment) -> Self {
        let Some(spec) = &deployment.spec else {
            return Self { surge: 0, unavailable: 0 };
        };
        let strategy = spec.strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
            return Self { surge: 0, unavailable: 0 };
        }
        let rolling =
            strategy.and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default();
        Self::resolve(&rolling, spec.replicas.unwrap_or(1))
    }

    /// Percentages count of the wanted replicas: surge rounds up, unavailability down; if both come
    /// out as 0, one replica may be missing, or nothing could ever move (`ResolveFenceposts`).
    fn resolve(rolling: &RollingUpdateDeployment, replicas: i32) -> Self {
        let quarter = IntOrString::String("25%".to_owned());
        let surge = scaled(rolling.max_surge.as_ref().unwrap_or(&quarter), replicas, true);
        let unavailable =
            scaled(rolling.max_unavailable.as_ref().unwrap_or(&quarter), replicas, false);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { surge, unavailable: unavailable.min(replicas) }
    }
}

/// A number, or a percentage of `of`.
pub fn scaled(value: &IntOrString, of: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * of;
            if round_up { (product + 99) / 100 } else { product / 100 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(surge: &str, unavailable: &str, replicas: i32) -> (i32, i32) {
        let value = |text: &str| {
            Some(text.parse().map_or_else(|_| IntOrString::String(text.into()), IntOrString::Int))
        };
        let rolling = RollingUpdateDeployment {
            max_surge: value(surge),
            max_unavailable: value(unavailable),
        };
        let bounds = Bounds::resolve(&rolling, replicas);
        (bounds.surge, bounds.unavailable)
    }

    #[test]
    fn percentages_round_the_surge_up_and_the_unavailability_down() {
        assert_eq!(resolved("25%", "25%", 3), (1, 0));
        assert_eq!(resolved("25%", "25%", 10), (3, 2));
        assert_eq!(resolved("2", "1", 3), (2, 1));
    }

    #[test]
    fn a_rolling_update_that_could_not_move_may_miss_one_replica() {
        assert_eq!(resolved("0", "0", 3), (0, 1));
        assert_eq!(resolved("0", "10%", 3), (0, 1));
    }
}
