-- The table report: temperatures of kettle and tank. The pipeline publishes it to brewery/report.
select topic, count(*) as readings, round(avg(celsius), 1) as mean, max(celsius) as warmest
from temps
group by topic
