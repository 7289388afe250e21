//! A custom resource whose objects own others: the example `website`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::bench::{Bench, PATIENCE, builtin_guest, deploy, on_the_sim};

const DEFINITION: &str = include_str!("../../../guests/examples/website/crd.yaml");

/// The paths of the site `shop` and of what it owns.
struct Shop {
    bench: Bench,
    sites: String,
    site: String,
    page: String,
    server: String,
}

impl Shop {
    async fn new(bench: Bench) -> Self {
        let definition = serde_saphyr::from_str(DEFINITION).unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        bench.must("POST", definitions, &definition).await;
        let namespace = json!({"metadata": {"name": bench.namespace}});
        bench.send("POST", "/api/v1/namespaces", &namespace).await;
        let below = |version: &str| format!("/{version}/namespaces/{}", bench.namespace);
        let sites = format!("{}/websites", below("apis/example.com/v1"));
        Self {
            site: format!("{sites}/shop"),
            sites,
            page: format!("{}/configmaps/shop", below("api/v1")),
            server: format!("{}/deployments/shop", below("apis/apps/v1")),
            bench,
        }
    }

    async fn create(&self) {
        let site = json!({
            "apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "shop"},
            "spec": {"html": "<h1>Shop</h1>"},
        });
        self.bench.must("POST", &self.sites, &site).await;
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (status, object) = self.bench.send("GET", path, &Value::Null).await;
        (status == 200).then_some(object)
    }

    /// The object at a path, once it is as it should be.
    async fn until(&self, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                match self.get(path).await {
                    Some(object) if fits(&object) => return object,
                    _ => sleep(Duration::from_millis(100)).await,
                }
            }
        };
        if let Ok(object) = timeout(PATIENCE, waiting).await {
            return object;
        }
        panic!("{path} is {:?}", self.get(path).await)
    }

    async fn until_gone(&self, path: &str) {
        let waiting = async {
            while self.get(path).await.is_some() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        assert!(timeout(PATIENCE, waiting).await.is_ok(), "{path} is there");
    }

    async fn until_served(&self) {
        let status = json!({"status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}});
        self.until(&self.server, |_| true).await;
        let path = format!("{}/status", self.server);
        self.bench.must("PATCH", &path, &status).await;
        self.until(&self.site, |site| ready(site) == "True").await;
    }

    /// How many writes the host has sent.
    fn writes(&self) -> usize {
        let requests = deploy::requests(self.bench.sim()).into_iter();
        let kinds = ["websites", "configmaps", "deployments"];
        requests
            .filter(|served| served.method != "GET" && kinds.contains(&&*served.work.resource))
            .count()
    }
}

fn ready(site: &Value) -> &str {
    let conditions = site["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|it| it["type"] == "Ready");
    ready.and_then(|it| it["status"].as_str()).unwrap_or("")
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn owner(object: &Value) -> &Value {
    &object["metadata"]["ownerReferences"][0]["uid"]
}

#[test]
fn a_site_keeps_what_it_owns_and_ends_in_order() {
    let config = format!(
        "controllers:\n- name: website\n  module: {{file: {}}}\n  mode: Enforce\n{}",
        builtin_guest("website").display(),
        "- {name: gc, module: {builtin: garbage-collector}, mode: Enforce}\n",
    );
    on_the_sim(|bench| async move {
        let shop = Shop::new(bench).await;
        let _host = shop.bench.host(&config).await;
        shop.create().await;
        shop.until_served().await;
        let former = shop.get(&shop.site).await.unwrap();
        let managers = former["metadata"]["managedFields"].as_array().unwrap();
        let applies = |it: &&Value| it["operation"] == "Apply";
        let manager = managers.iter().find(applies).unwrap();
        assert_eq!(manager["manager"], "davit/website");
        assert_eq!(manager["subresource"], "status");

        // Its own writes are no reason for another one.
        let writes = shop.writes();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(shop.writes(), writes);

        let page = shop.get(&shop.page).await.unwrap();
        shop.bench.must("DELETE", &shop.page, &json!({})).await;
        let again = shop.until(&shop.page, |new| uid(new) != uid(&page)).await;
        assert_eq!(owner(&again), &json!(uid(&former)));

        let changed = json!({"data": {"index.html": "hacked", "robots.txt": "kept"}});
        shop.bench.must("PATCH", &shop.page, &changed).await;
        let html = |page: &Value| page["data"]["index.html"] == "<h1>Shop</h1>";
        let undone = shop.until(&shop.page, html).await;
        assert_eq!(undone["data"]["robots.txt"], "kept");

        shop.bench.must("DELETE", &shop.site, &json!({})).await;
        shop.until_gone(&shop.site).await;
        assert!(shop.get(&shop.server).await.is_none(), "it ends first");

        // Whatever the garbage collector has not deleted yet belongs to nobody else.
        shop.create().await;
        let new = shop.until(&shop.site, |site| ready(site) == "False").await;
        let is_of_new = |page: &Value| owner(page) == &json!(uid(&new));
        let page = shop.until(&shop.page, is_of_new).await;
        assert_ne!(uid(&page), uid(&undone));
        shop.until_served().await;
    });
}
