//! A Helm chart, generated from what kustomize renders: deploy/ stays the only source.
//!
//! The text of kustomize is kept, except for the values below. `helm template` with the
//! default values prints it again.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

const NAMESPACE: &str = "davit-system";
const RESOURCES: &str = "        resources:\n";
/// What two hosts may not run with.
const SINGLE: &str = "        - --single\n";

/// Renders an overlay and writes its chart into a directory, which is replaced.
pub(crate) fn write(workspace: &Path, overlay: &Path, directory: &Path) -> Result<()> {
    let mut kustomize = Command::new("kubectl");
    kustomize
        .current_dir(workspace)
        .arg("kustomize")
        .arg(overlay);
    let output = kustomize.output().context("kubectl kustomize")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl kustomize: {errors}");
    let chart = Chart::of(&String::from_utf8(output.stdout)?)?;
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    for (path, text) in chart.files() {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().context("no directory")?)?;
        fs::write(path, text)?;
    }
    println!("{}", directory.display());
    Ok(())
}

/// The parts of a chart.
struct Chart {
    /// Helm neither fills in nor upgrades these.
    definitions: String,
    templates: String,
    values: String,
}

impl Chart {
    fn of(rendered: &str) -> Result<Self> {
        ensure!(!rendered.contains("{{"), "kustomize renders a template");
        let is_definition =
            |document: &&str| document.contains("\nkind: CustomResourceDefinition\n");
        let documents = || rendered.split_inclusive("---\n");
        let definitions: String = documents().filter(is_definition).collect();
        let mut templates: String = documents().filter(|one| !is_definition(one)).collect();
        let mut values = String::from("# The namespace of every object.\n");
        writeln!(values, "namespace: {NAMESPACE}")?;
        replace_namespace(&mut templates, &mut values);
        let image = replace_value(&mut templates, "        image: ", "image | quote")?;
        writeln!(values, "image: {image}")?;
        if !templates.contains(SINGLE) {
            let replicas = replace_value(&mut templates, "  replicas: ", "replicas")?;
            writeln!(values, "replicas: {replicas}")?;
        }
        replace_resources(&mut templates, &mut values)?;
        add_arguments(&mut templates, &mut values)?;
        Ok(Self {
            definitions,
            templates,
            values,
        })
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let version = env!("CARGO_PKG_VERSION");
        let chart = format!(
            "apiVersion: v2\nname: davit\ndescription: Kubernetes controllers as WebAssembly\n\
             version: {version}\nappVersion: {version}\n"
        );
        let mut files = vec![
            ("Chart.yaml", chart),
            ("values.yaml", self.values.clone()),
            ("templates/davit.yaml", self.templates.clone()),
        ];
        // Helm fails at a file of definitions that has none: the overlay `file` has none.
        if !self.definitions.is_empty() {
            files.push(("crds/controllers.davit.dev.yaml", self.definitions.clone()));
        }
        files
    }
}

/// Puts the value in the place of the namespace's name. The namespace itself is left out if it exists
/// already: Helm does not take over what it has not created.
fn replace_namespace(templates: &mut String, values: &mut String) {
    // A name such as `123` or `on` has to stay a text.
    let whole = format!(": {NAMESPACE}\n");
    *templates = templates
        .replace(&whole, ": {{ .Values.namespace | quote }}\n")
        .replace(NAMESPACE, "{{ .Values.namespace }}");
    let mut filled = String::new();
    for document in templates.split_inclusive("---\n") {
        if !document.contains("\nkind: Namespace\n") {
            filled += document;
            continue;
        }
        let body = document.strip_suffix("---\n").unwrap_or(document);
        filled += "{{- if .Values.createNamespace }}\n";
        filled += body;
        filled += "{{- end }}\n";
        filled += document.strip_prefix(body).unwrap_or_default();
    }
    *templates = filled;
    values.push_str("# False if the namespace exists.\ncreateNamespace: true\n");
}

/// Puts a value in the place of the only field that starts like this; returns what it was.
fn replace_value(templates: &mut String, field: &str, name: &str) -> Result<String> {
    let field = format!("\n{field}");
    let found: Vec<usize> = templates.match_indices(&field).map(|(at, _)| at).collect();
    let [at] = found.as_slice() else {
        anyhow::bail!("{} fields {name}", found.len());
    };
    let start = at + field.len();
    let rest = templates.get(start..).unwrap_or_default();
    let value = rest.lines().next().unwrap_or_default().to_owned();
    let template = format!("{{{{ .Values.{name} }}}}");
    templates.replace_range(start..start + value.len(), &template);
    Ok(value)
}

fn replace_resources(templates: &mut String, values: &mut String) -> Result<()> {
    let start = templates.find(RESOURCES).context("no resources")? + RESOURCES.len();
    let rest = templates.get(start..).unwrap_or_default();
    let indented = rest
        .split_inclusive('\n')
        .take_while(|line| line.starts_with("          "));
    let block: String = indented.collect();
    values.push_str("resources:\n");
    for line in block.lines() {
        writeln!(values, "{}", line.get(8..).unwrap_or_default())?;
    }
    let template = "          {{- toYaml .Values.resources | nindent 10 }}\n";
    templates.replace_range(start..start + block.len(), template);
    Ok(())
}

/// Options of `davit run` after those of the Deployment. The overlay `single` changes more than an
/// option: with `--single` alone, two hosts would write without Leases.
fn add_arguments(templates: &mut String, values: &mut String) -> Result<()> {
    let last = "        - --log-format=json\n";
    let end = templates.find(last).context("no arguments")? + last.len();
    templates.insert_str(
        end,
        "        {{- if has \"--single\" .Values.arguments }}\n        {{- fail \"--single is no \
         argument for this chart: make that of deploy/overlays/single\" }}\n        {{- end }}\n        \
         {{- with .Values.arguments }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n",
    );
    values.push_str("# More options of davit run.\narguments: []\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "apiVersion: v1
kind: Namespace
metadata:
  name: davit-system
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: controllers.davit.dev
---
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: davit-system
spec:
  replicas: 2
  template:
    spec:
      containers:
      - args:
        - run
        - --log-format=json
        image: davit:0.1.0
        resources:
          limits:
            memory: 2Gi
        securityContext: {}
";

    #[test]
    fn the_values_are_those_that_kustomize_renders() {
        let chart = Chart::of(RENDERED).unwrap();
        assert_eq!(
            chart.values,
            "# The namespace of every object.\nnamespace: davit-system\n\
             # False if the namespace exists.\ncreateNamespace: true\nimage: davit:0.1.0\n\
             replicas: 2\nresources:\n  limits:\n    memory: 2Gi\n\
             # More options of davit run.\narguments: []\n"
        );
        assert!(chart.definitions.contains("name: controllers.davit.dev"));
        // As helm fills in the default values.
        let filled = chart
            .templates
            .replace("{{- if .Values.createNamespace }}\n", "")
            .replace("{{- end }}\n---", "---")
            .replace("{{ .Values.namespace | quote }}", "davit-system")
            .replace("{{ .Values.image | quote }}", "davit:0.1.0")
            .replace("{{ .Values.replicas }}", "2")
            .replace(
                "          {{- toYaml .Values.resources | nindent 10 }}\n",
                "          limits:\n            memory: 2Gi\n",
            );
        let (before, arguments) = filled.split_once("        {{- if has").unwrap();
        let (_, after) = arguments.rsplit_once("{{- end }}\n").unwrap();
        let filled = [before, after].concat();
        assert!(!filled.contains("{{"), "{filled}");
        let documents = |text: &str| -> Vec<String> {
            let all = text.split("---\n").map(str::to_owned);
            all.filter(|one| !one.contains("CustomResourceDefinition"))
                .collect()
        };
        assert_eq!(documents(&filled), documents(RENDERED));
    }

    #[test]
    fn the_chart_of_one_replica_has_no_value_for_more() {
        let single = "        - --log-format=json\n        - --single\n";
        let rendered = RENDERED
            .replace("        - --log-format=json\n", single)
            .replace("replicas: 2", "replicas: 1");
        let chart = Chart::of(&rendered).unwrap();
        assert!(!chart.values.contains("replicas"), "{}", chart.values);
        assert!(chart.templates.contains("  replicas: 1\n"));
    }

    #[test]
    fn an_unexpected_output_of_kustomize_makes_no_chart() {
        for (from, to) in [
            ("replicas: 2", "replicas: {{ 2 }}"),
            ("image: davit", "picture: davit"),
            ("--log-format=json", "--log-format=text"),
            ("        resources:\n", ""),
        ] {
            assert!(Chart::of(&RENDERED.replace(from, to)).is_err(), "{from}");
        }
    }
}
