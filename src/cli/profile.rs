//! How `--profile` is shown: a table on stderr, an object in JSON.

use super::style::Console;
use crate::run::profile::Profile;
use serde_json::{Map, Value, json};

/// The table, for people.
pub fn say(profile: &Profile, console: &Console) {
    table(profile).iter().for_each(|line| console.say(line));
}

/// Seconds by phase, and in all.
pub fn object(profile: &Profile) -> Value {
    let mut object: Map<String, Value> = Map::new();
    for (name, seconds) in &profile.phases {
        object.insert((*name).into(), json!(rounded(*seconds)));
    }
    object.insert("total".into(), json!(rounded(profile.total)));
    Value::Object(object)
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn table(profile: &Profile) -> Vec<String> {
    let line = |name: &str, seconds: f64| {
        let share = 100.0 * seconds / profile.total.max(1e-12);
        format!(
            "  {:<20}{seconds:>10.3}{share:>8.1} %",
            name.replace('_', " ")
        )
    };
    let mut lines = vec![format!("  {:<20}{:>10}{:>10}", "phase", "seconds", "share")];
    lines.extend(
        profile
            .phases
            .iter()
            .map(|(name, seconds)| line(name, *seconds)),
    );
    lines.push(line("total", profile.total));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_under_each_other() {
        let profile = Profile {
            total: 12.5,
            phases: vec![("admit", 2.5), ("forward_matmul", 10.0)],
        };
        let expected = "  phase                  seconds     share
  admit                    2.500    20.0 %
  forward matmul          10.000    80.0 %
  total                   12.500   100.0 %";
        assert_eq!(table(&profile).join("\n"), expected);
        let json = json!({"admit": 2.5, "forward_matmul": 10.0, "total": 12.5});
        assert_eq!(object(&profile), json);
    }
}
