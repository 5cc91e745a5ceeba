"""Makes the bucket on the S3 server at a port of the loopback address: bucket.py PORT."""

import sys

import boto3

client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", region_name="us-east-1",
                      aws_access_key_id="key", aws_secret_access_key="secret")
client.create_bucket(Bucket="bucket")
