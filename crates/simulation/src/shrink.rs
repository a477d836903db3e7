//! Shrinks a failing plan to the actions that matter.

use crate::life::Trace;
use crate::plan::Plan;
use crate::run::{Failure, Scope, run};

/// Most attempts of one shrinking.
const ATTEMPTS: usize = 600;

/// The smallest plan found that still fails, and its failure.
pub fn shrink(plan: &Plan, scope: &Scope, failure: Failure) -> (Plan, Failure) {
    let mut best = (plan.clone(), failure);
    let mut attempts = 0;
    let mut chunk = best.0.actions.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < best.0.actions.len() {
            if attempts == ATTEMPTS {
                return best;
            }
            attempts += 1;
            let mut candidate = best.0.clone();
            let end = (at + chunk).min(candidate.actions.len());
            candidate.actions.drain(at..end);
            match run(&candidate, scope, &mut Trace::default()) {
                Err(failure) => {
                    best = (candidate, failure);
                    shorter = true;
                }
                Ok(_) => at += chunk,
            }
        }
        if !shorter || chunk > 1 {
            chunk /= 2;
        }
    }
    best
}
