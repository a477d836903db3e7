//! temporary
use forebay_object::*;
#[tokio::test]
#[ignore]
async fn byhand() {
    let t = std::time::Instant::now();
    let r = open("s3://bucket/a/volume", &StoreOptions::default()).await;
    eprintln!("open {:?}", t.elapsed());
    match r {
        Err(e) => eprintln!("{e}"),
        Ok(s) => {
            eprintln!("{:?}", probe(&s).await);
            use object_store::ObjectStoreExt;
            let p = s.path("big");
            let t = std::time::Instant::now();
            for _ in 0..32 {
                s.store.put(&p, vec![7u8; 4 << 20].into()).await.unwrap();
            }
            eprintln!("put 128 MiB {:?}", t.elapsed());
            let t = std::time::Instant::now();
            for _ in 0..32 {
                s.store.get(&p).await.unwrap().bytes().await.unwrap();
            }
            eprintln!("get 128 MiB {:?}", t.elapsed());
        }
    }
}
